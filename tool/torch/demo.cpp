#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <memory>

#include "starling/base/error.h"
#include "starling/data/registry.h"
#include "starling/launch/cpus.h"
#include "starling/launch/launcher.h"
#include "starling/record/run_log.h"
#include "starling/report/training_page.h"
#include "tool/bench_program.h"
#include "tool/last_words.h"
#include "tool/torch/command.h"
#include "tool/worker_group.h"

namespace starling::tool {
namespace {

struct DemoOptions {
  int workers = 4;
  int epochs = 2;
  std::string data = "mnist";
  std::string html = "starling-demo.html";
  std::uint64_t seed = 1;
};

struct Contender {
  std::string name;
  std::string method;
  RunLog log = {};

  double accuracy() const { return *log.last_evaluation()->test_accuracy; }
  double samples_per_second() const {
    double samples = 0, seconds = 0;
    // Without the warm-up of the first report.
    for (std::size_t i = 1; i < log.reports.size(); ++i) {
      const double took = log.reports[i].seconds - log.reports[i - 1].seconds;
      samples += log.reports[i].images_per_second * took;
      seconds += took;
    }
    return seconds > 0 ? samples / seconds : log.reports.back().images_per_second;
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

// As `starling train` would do it.
void train(Contender& contender, const DemoOptions& options) {
  const std::string metrics =
      std::filesystem::path(options.html).replace_extension(contender.method + ".jsonl").string();
  check_writable(metrics);
  // The generated images are fewer and easier to overshoot on.
  const char* lr = options.data.rfind("synthetic", 0) != 0 ? "0.05" : "0.02";
  const int threads = std::max(1, static_cast<int>(launch::allowed_cpus().size()) / options.workers);
  launch::LaunchOptions job;
  job.ranks = options.workers;
  job.command = {own_path(), "train", "--data", options.data, "--method", contender.method, "--lr", lr};
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"--warmup", "0.2"},
                                                        {"--epochs", std::to_string(options.epochs)},
                                                        {"--seed", std::to_string(options.seed)},
                                                        {"--threads", std::to_string(threads)},
                                                        {"--metrics", metrics}}) {
    job.command.push_back(name);
    job.command.push_back(value);
  }
  job.environment = training_environment(threads);
  job.share_output = true;
  const LastWords words;
  job.environment.push_back(words.variable());
  const int status = launch::launch(job);
  words.tell();
  if (status != 0) throw Error("the training of " + contender.name + " failed");
  contender.log = read_run_log(metrics);
}

// Computed from the run, whatever it says.
std::string verdict(const Contender& ours, const Contender& theirs) {
  const double speed = ours.samples_per_second() / theirs.samples_per_second();
  const double points = 100 * (ours.accuracy() - theirs.accuracy());
  const std::string pace = std::abs(speed - 1) < 0.02 ? "as fast as"
                           : speed > 1                ? fmt::format("{:.2f}x as fast as", speed)
                                                      : fmt::format("slower than ({:.2f}x)", speed);
  const std::string quality = std::abs(points) < 0.05 ? "with the same accuracy"
                              : points > 0            ? fmt::format("and {:.2f} points more accurate", points)
                                           : fmt::format("and {:.2f} points less accurate", -points);
  return fmt::format("{} was {} {}, {} ({:.2f} % against {:.2f} %).", ours.name, pace, theirs.name, quality,
                     100 * ours.accuracy(), 100 * theirs.accuracy());
}

void run(DemoOptions options) {
  check_writable(options.html);
  options.data = available(options.data);
  std::vector<Contender> contenders = {{"one-peer exponential", "dsgd-awc"}, {"all-reduce", "allreduce"}};
  std::cout << fmt::format("LeNet on {}: {} workers, {} epochs, the same data and seeds\n", options.data,
                           options.workers, options.epochs);
  for (Contender& contender : contenders) {
    std::cout << '\n' << contender.name << std::endl;
    train(contender, options);
  }
  std::cout << '\n' << verdict(contenders[0], contenders[1]) << '\n';
  write_training_page({contenders[0].log, contenders[1].log}, "One model, no server", options.html);
  std::cout << "Open " << options.html << " in a browser.\n";
}

}  // namespace

void add_demo(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
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
