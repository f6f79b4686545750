#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "starling/record/run_log.h"

namespace starling::report {

struct ToyRun {
  std::string method = "dsgd-awc";
  std::string topology = "ring";
  double lr = 0.05;
  int seed = 1;
  double accuracy = 0.9;
  double slowness = 1;
  bool finished = true;
};

/// Twenty reports of two epochs with ten steps each; different methods and topologies give different curves.
inline RunLog toy_run(const ToyRun& toy) {
  RunLog log;
  log.path = "runs/" + toy.method + "-" + toy.topology + "/metrics.jsonl";
  log.header.starling = "0.1.0";
  log.header.torch = "1.13.1";
  log.header.date = "2026-11-15";
  log.header.command = "starling train --method " + toy.method + " --seed " + std::to_string(toy.seed);
  log.header.machine = "2 cores";
  log.header.workers = 8;
  log.header.parameters = 1000;
  const std::string lr = std::to_string(toy.lr);
  log.header.experiment = {{"data", "mnist"},
                           {"model", "lenet"},
                           {"method", toy.method},
                           {"topology", toy.topology},
                           {"optimizer", "momentum(lr=" + lr + ", momentum=0.8)"},
                           {"batch", "32"},
                           {"seed", std::to_string(toy.seed)}};
  for (int k = 1; k <= 20; ++k) {
    RunReport report;
    report.step = 10 * k;
    report.epoch = k / 10.0;
    report.seconds = toy.slowness * k;
    report.loss = (2 - toy.accuracy) * std::exp(-0.2 * k * toy.accuracy);
    report.learning_rate = toy.lr;
    report.images_per_second = 1000 / toy.slowness;
    report.consensus_distance = toy.method == "allreduce" ? 0 : toy.accuracy / k;
    report.bytes_sent = static_cast<std::uint64_t>(32000 * k);
    report.computing = 0.5 * report.seconds;
    report.waiting = 0.3 * report.seconds;
    report.combining = 0.2 * report.seconds;
    report.workers = report.taking_part = 8;
    if (k % 10 == 0) {
      report.test_accuracy = toy.accuracy - (k == 10 ? 0.2 : 0);
      report.test_loss = 1 - *report.test_accuracy;
      report.local_accuracy = *report.test_accuracy - 0.02;
      report.local_accuracy_least = *report.test_accuracy - 0.05;
      report.local_accuracy_most = *report.test_accuracy + 0.03;
      report.local_mean_accuracy = *report.test_accuracy + 0.01;
    }
    log.reports.push_back(report);
  }
  if (toy.finished) log.end = RunEnd{200, 20 * toy.slowness};
  return log;
}

/// The text of the log as in metrics.jsonl.
inline std::string text_of(const RunLog& log) {
  std::string text = to_line(log.header);
  for (const RunReport& report : log.reports) text += to_line(report);
  if (log.end) text += to_line(*log.end);
  return text;
}

/// Two methods, two learning rates, two seeds; the larger rate is better for one and diverges for the other.
inline std::vector<RunLog> toy_sweep() {
  std::vector<RunLog> runs;
  for (const int seed : {1, 2}) {
    const double luck = 0.01 * seed;
    runs.push_back(toy_run({"dsgd-awc", "ring", 0.05, seed, 0.7 + luck}));
    runs.push_back(toy_run({"dsgd-awc", "ring", 0.1, seed, 0.8 + luck}));
    runs.push_back(toy_run({"allreduce", "ring", 0.05, seed, 0.9 + luck, 2}));
    runs.push_back(toy_run({"allreduce", "ring", 0.1, seed, 0.1, 2}));
    runs.back().reports.back().loss = std::nan("");
  }
  return runs;
}

}  // namespace starling::report
