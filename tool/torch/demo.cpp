#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <memory>

#include "starling/base/error.h"
#include "starling/data/registry.h"
#include "starling/launch/cpus.h"
#include "starling/record/run_log.h"
#include "starling/report/number_text.h"
#include "starling/report/training_page.h"
#include "starling/version.h"
#include "tool/torch/command.h"
#include "tool/torch/demo_verdicts.h"
#include "tool/torch/slow_worker.h"
#include "tool/torch/train_job.h"

namespace starling::tool {
namespace {

constexpr const char* kNeighbors = "dsgd-awc";
constexpr const char* kAllReduce = "allreduce";
constexpr const char* kAsynchronous = "ad-psgd";
constexpr Rank kVictim = 1;

struct DemoOptions {
  int workers = 4;
  int epochs = 0;  // 0: as many as the data set needs
  std::string data = "mnist";
  std::string html = "starling-demo.html";
  std::uint64_t seed = 1;
  bool quick = false;
};

// MNIST if available, otherwise data that needs no network.
std::string available(const std::string& wanted) {
  const DataSource& source = find_data_source(wanted);
  if (!source.recipe) return wanted;
  try {
    fetch(source, {}, [](const std::string& line) { std::cout << line << std::endl; });
    return wanted;
  } catch (const Error& error) {
    std::cout << error.what()
              << "\n\nUsing the data set `synthetic` instead, which is generated: it shows that training "
                 "works, not how well.\n"
              << std::endl;
    return "synthetic";
  }
}

class Demo {
 public:
  explicit Demo(DemoOptions options) : options_(std::move(options)) {
    check_writable(options_.html);
    options_.data = available(options_.data);
    if (options_.epochs == 0) options_.epochs = needed_epochs();
    prepare_for_workers();
    task_ = load_task(options_.data);
    threads_ = std::max(1, static_cast<int>(launch::allowed_cpus().size()) / options_.workers);
  }

  void run() {
    std::cout << fmt::format("LeNet on {}: {}, {}, the same data and seeds\n", options_.data,
                             counted(options_.workers, "worker"), counted(options_.epochs, "epoch"));
    act("Act 1: averaging with one neighbor per step, and all-reduce");
    const RunLog neighbors = train("neighbors", kNeighbors, false);
    const RunLog all_reduce = train("all-reduce", kAllReduce, false);
    conclude(accuracy_verdict(neighbors, all_reduce, test_samples(*task_)));
    if (options_.workers > 1) {
      act("Act 2: one worker is killed halfway");
      const RunLog survivors = train("killed", kNeighbors, true);
      conclude(death_verdict(survivors, neighbors, kVictim, test_samples(*task_)));
      act(fmt::format("Act 3: one worker computes {} times as long as the others",
                      SlowWorkerPlan{}.slowness));
      conclude(slow_worker_verdict(beside_slow_worker(kAllReduce), beside_slow_worker(kAsynchronous),
                                   options_.workers, SlowWorkerPlan{}.slowness, test_samples(*task_)));
      runs_ = {neighbors, all_reduce, survivors};
    } else {
      runs_ = {neighbors, all_reduce};
    }
    finish();
  }

 private:
  // There are fewer generated images, so learning takes more passes over them.
  int needed_epochs() const { return (is_generated() ? 8 : 2) / (options_.quick ? 2 : 1); }
  bool is_generated() const { return options_.data.starts_with("synthetic"); }

  static void act(const std::string& heading) { std::cout << '\n' << heading << std::endl; }

  void conclude(const Verdict& verdict) {
    std::cout << "=> " << verdict.claim << ": " << verdict.evidence << std::endl;
    verdicts_.push_back(verdict);
  }

  // There are fewer generated images, and a high learning rate overshoots more easily.
  std::string optimizer() const { return fmt::format("momentum(lr={})", is_generated() ? "0.02" : "0.05"); }

  // The same training as in `starling train`.
  RunLog train(const std::string& name, const std::string& method, bool kill_one) {
    TrainJob job;
    job.experiment.data = options_.data;
    job.experiment.method = method;
    job.experiment.optimizer = optimizer();
    job.experiment.warmup = 0.2;
    job.experiment.epochs = options_.epochs;
    job.experiment.seed = options_.seed;
    job.experiment.evaluations = 4;
    job.threads = threads_;
    job.task = task_;
    job.metrics = std::filesystem::path(options_.html).replace_extension(name + ".jsonl").string();
    check_writable(job.metrics);
    if (kill_one) {
      job.experiment.on_peer_failure = "reweight";
      job.on_event = [middle = options_.epochs / 2.0](Flock& flock, const RunEvent& event) {
        const auto* report = std::get_if<RunReport>(&event);
        if (report != nullptr && report->epoch >= middle && flock.rank() == kVictim) std::raise(SIGKILL);
      };
    }
    if (start_workers(job, options_.workers) != 0) throw Error("the training with " + method + " failed");
    return read_run_log(job.metrics);
  }

  SlowWorkerRun beside_slow_worker(const std::string& method) {
    SlowWorkerPlan plan;
    plan.task = task_;
    plan.method = method;
    plan.optimizer = optimizer();
    plan.workers = options_.workers;
    plan.threads = threads_;
    plan.steps = options_.quick ? 100 : 200;
    plan.seed = options_.seed;
    const SlowWorkerRun run = train_beside_slow_worker(plan);
    std::cout << fmt::format(
                     "{:<10} {:.1f} s, the fast workers made {:.0f} steps each, the slow one {:.0f}; they "
                     "waited {:.0f} % of "
                     "the time",
                     method, run.seconds, run.fast_steps, run.slow_steps, 100 * run.waiting)
              << std::endl;
    return run;
  }

  void finish() {
    std::cout << '\n';
    for (const Verdict& verdict : verdicts_) std::cout << verdict.claim << ": " << verdict.evidence << '\n';
    write_training_page(runs_, "One model, no server", options_.html,
                        {command_line(), STARLING_VERSION, today()}, verdicts_);
    std::cout << "Open " << options_.html << " in a browser.\n";
  }

  DemoOptions options_;
  std::shared_ptr<const Task> task_;
  int threads_ = 1;
  std::vector<RunLog> runs_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

void add_demo(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command = app.add_subcommand(
      "demo", "Train LeNet on MNIST: against all-reduce, with a killed and with a slow worker");
  command->add_option("--workers", options->workers, "number of worker processes")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  CLI::Option* epochs =
      command->add_option("--epochs", options->epochs, "passes over the data (default: 2; synthetic: 8)")
          ->check(CLI::Range(1, 1000));
  command->add_flag("--quick", options->quick, "half the epochs, and half of the steps beside a slow worker")
      ->excludes(epochs);
  command->add_option("--data", options->data, "mnist, or synthetic, which needs no network")
      ->type_name("DATA")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "seed for init, data split and shuffling")
      ->check(whole_number())
      ->capture_default_str();
  command->add_option("--html", options->html, "write the page to FILE")
      ->type_name("FILE")
      ->capture_default_str();
  command->footer(
      "Examples:\n  starling demo\n  starling demo --data synthetic --workers 2 --quick --html demo.html");
  command->callback([options] { Demo(*options).run(); });
}

}  // namespace starling::tool
