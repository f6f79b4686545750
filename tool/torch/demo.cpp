#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <optional>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/data/registry.h"
#include "starling/launch/cpus.h"
#include "starling/report/page.h"
#include "starling/report/topology_svg.h"
#include "starling/topology/registry.h"
#include "starling/train/experiment.h"
#include "starling/version.h"
#include "tool/bench_program.h"
#include "tool/progress.h"
#include "tool/torch/command.h"
#include "tool/torch/experiment_worker.h"
#include "tool/worker_group.h"

namespace starling::tool {
namespace {

using namespace std::chrono_literals;

struct Options {
  int workers = 4;
  int epochs = 2;
  std::string data = "mnist";
  std::string html = "starling-demo.html";
  std::uint64_t seed = 1;
};

struct Contender {
  std::string name;
  std::string method;
  std::string topology;
  std::vector<Report> reports;

  const Report& end() const { return reports.back(); }
  // Without the warm-up of the first report.
  double images_per_second() const {
    double images = 0, seconds = 0;
    for (std::size_t i = 1; i < reports.size(); ++i) {
      const double took = reports[i].seconds - reports[i - 1].seconds;
      images += reports[i].images_per_second * took;
      seconds += took;
    }
    return seconds > 0 ? images / seconds : end().images_per_second;
  }
};

// MNIST if it can be had, else what needs no network.
std::string available(const std::string& wanted) {
  const DataSource& source = find_data_source(wanted);
  if (!source.recipe) return wanted;
  try {
    fetch(source, {}, [](const std::string& line) { std::cout << line << std::endl; });
    return wanted;
  } catch (const Error& error) {
    std::cout << error.what()
              << "\n\nGoing on with the data set `synthetic`, which is generated and proves nothing but that "
                 "training works.\n"
              << std::endl;
    return "synthetic";
  }
}

std::string bar(double share) {
  constexpr int kWidth = 24;
  const int full = std::clamp(static_cast<int>(std::lround(share * kWidth)), 0, kWidth);
  return "[" + std::string(static_cast<std::size_t>(full), '=') +
         std::string(static_cast<std::size_t>(kWidth - full), ' ') + "]";
}

// One line on a terminal, a line per report in a pipe.
class Live {
 public:
  void show(const Contender& contender, const Report& report, int epochs) {
    if (report.test_accuracy >= 0) accuracy_ = fmt::format("{:.2f} %", 100 * report.test_accuracy);
    const std::string text = fmt::format(
        "{:<22} {} epoch {:4.1f}/{}  loss {:.4f}  accuracy {:>7}  {:6.0f} images/s  distance {:.4f}",
        contender.name, bar(report.epoch / epochs), report.epoch, epochs, report.loss, accuracy_,
        report.images_per_second, report.consensus_distance);
    if (isatty(STDOUT_FILENO) != 0 && report.epoch < epochs)
      progress_.show(text);
    else {
      progress_.clear();
      std::cout << text << std::endl;
    }
  }

 private:
  Progress progress_;
  std::string accuracy_ = "-";
};

void train(Contender& contender, const Options& options) {
  Experiment experiment;
  experiment.data = options.data;
  experiment.method = contender.method;
  experiment.topology = contender.topology;
  // The generated images are fewer and easier to overshoot on.
  experiment.optimizer = options.data.rfind("synthetic", 0) != 0 ? "momentum(lr=0.05)" : "momentum(lr=0.02)";
  experiment.warmup = 0.2;
  experiment.epochs = options.epochs;
  experiment.seed = options.seed;
  const int threads = std::max(1, static_cast<int>(launch::allowed_cpus().size()) / options.workers);
  WorkerGroup group(contender.name, experiment_command(experiment, threads), options.workers,
                    launch::allowed_cpus(), training_environment(threads));
  Live live;
  while (const auto line = group.line_of(0, 600s)) {
    contender.reports.push_back(read_report(*line));
    live.show(contender, contender.reports.back(), options.epochs);
  }
  group.finish(60s);
}

// Computed from the run, whatever it says.
std::string verdict(const Contender& ours, const Contender& theirs) {
  const double speed = ours.images_per_second() / theirs.images_per_second();
  const double points = 100 * (ours.end().test_accuracy - theirs.end().test_accuracy);
  const std::string pace = std::abs(speed - 1) < 0.02 ? "as fast as"
                           : speed > 1                ? fmt::format("{:.2f}x as fast as", speed)
                                                      : fmt::format("slower than ({:.2f}x)", speed);
  const std::string quality = std::abs(points) < 0.05 ? "with the same accuracy"
                              : points > 0            ? fmt::format("and {:.2f} points more accurate", points)
                                           : fmt::format("and {:.2f} points less accurate", -points);
  return fmt::format("{} was {} {}, {} ({:.2f} % against {:.2f} %).", ours.name, pace, theirs.name, quality,
                     100 * ours.end().test_accuracy, 100 * theirs.end().test_accuracy);
}

Table summary(const std::vector<Contender>& contenders) {
  Table table({{"method", Align::left},
               {"test accuracy", Align::right},
               {"images/s", Align::right},
               {"training time", Align::right},
               {"waiting", Align::right},
               {"consensus distance", Align::right}});
  for (const Contender& one : contenders) {
    double waiting = 0;
    for (const Report& report : one.reports)
      waiting += report.waiting / static_cast<double>(one.reports.size());
    table.row({one.name, fmt::format("{:.2f} %", 100 * one.end().test_accuracy),
               fmt::format("{:.0f}", one.images_per_second()), human_time(one.end().seconds),
               fmt::format("{:.1f} %", 100 * waiting), fmt::format("{:.4f}", one.end().consensus_distance)});
  }
  table.footnote("accuracy of the mean model; waiting: share of the workers' time spent waiting for others");
  return table;
}

LineChart chart(const std::vector<Contender>& contenders, const std::string& title,
                const std::string& y_label, const std::function<double(const Report&)>& x,
                const std::string& x_label, const std::function<std::optional<double>(const Report&)>& y,
                bool log_y) {
  LineChart result;
  result.title = title;
  result.x_label = x_label;
  result.y_label = y_label;
  result.log_y = log_y;
  result.markers = true;
  for (const Contender& one : contenders) {
    Series series{one.name};
    for (const Report& report : one.reports)
      if (const auto value = y(report)) {
        series.x.push_back(x(report));
        series.y.push_back(*value);
      }
    result.series.push_back(series);
  }
  return result;
}

void write_page(const std::vector<Contender>& contenders, const Options& options,
                const std::string& verdict_text) {
  const auto seconds = [](const Report& report) { return report.seconds; };
  const auto loss = [](const Report& report) { return std::optional(report.loss); };
  const auto distance = [](const Report& report) {
    return report.consensus_distance > 0 ? std::optional(report.consensus_distance) : std::nullopt;
  };
  const auto accuracy = [](const Report& report) {
    return report.test_accuracy < 0 ? std::nullopt : std::optional(100 * report.test_accuracy);
  };
  const auto epoch = [](const Report& report) { return report.epoch; };
  Page page("One model, no server",
            fmt::format("LeNet on {}, {} workers, {} epochs", options.data, options.workers, options.epochs));
  page.paragraph(verdict_text);
  page.facts(
      {{"accuracy, " + contenders[0].name, fmt::format("{:.2f} %", 100 * contenders[0].end().test_accuracy)},
       {"accuracy, " + contenders[1].name, fmt::format("{:.2f} %", 100 * contenders[1].end().test_accuracy)},
       {"images/s, " + contenders[0].name, fmt::format("{:.0f}", contenders[0].images_per_second())},
       {"images/s, " + contenders[1].name, fmt::format("{:.0f}", contenders[1].images_per_second())}});
  page.section("Loss").chart(
      chart(contenders, "Training loss against time", "loss", seconds, "seconds", loss, true));
  page.section("Accuracy")
      .chart(chart(contenders, "Test accuracy of the mean model", "%", epoch, "epoch", accuracy, false));
  page.section("Agreement")
      .paragraph(
          "How far the workers' models are from their mean. All-reduce keeps them equal; neighbours keep "
          "them close.")
      .chart(chart({contenders[0]}, "Consensus distance", "root mean square distance", seconds, "seconds",
                   distance, true));
  page.section("Summary").table(summary(contenders));
  const auto schedule = make_schedule(contenders[0].topology, options.workers);
  page.section("Who talks to whom")
      .pictures({{topology_svg(*schedule), "Every arrow is a message of one model; the rounds take turns."}});
  write_file(options.html, page.html({command_line(), STARLING_VERSION, today()}));
}

void run(Options options) {
  check_writable(options.html);
  options.data = available(options.data);
  std::vector<Contender> contenders = {{"one-peer exponential", "dsgd-awc", "one-peer-exponential", {}},
                                       {"all-reduce", "allreduce", "one-peer-exponential", {}}};
  std::cout << fmt::format("LeNet on {}: {} workers, {} epochs, the same data and seeds\n\n", options.data,
                           options.workers, options.epochs);
  for (Contender& contender : contenders) train(contender, options);
  const std::string text = verdict(contenders[0], contenders[1]);
  std::cout << '\n' << summary(contenders).text(colour_wanted()) << '\n' << text << '\n';
  write_page(contenders, options, text);
  std::cout << "Open " << options.html << " in a browser.\n";
}

}  // namespace

void add_demo(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("demo", "Train LeNet on MNIST: neighbours against all-reduce");
  command->add_option("--workers", options->workers, "how many processes")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--epochs", options->epochs, "passes over the data")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--data", options->data, "mnist, or synthetic, which needs no network")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the start, the split and the order")
      ->check(whole_number())
      ->capture_default_str();
  command->add_option("--html", options->html, "where the page goes")->capture_default_str();
  command->callback([options] { run(*options); });
}

}  // namespace starling::tool
