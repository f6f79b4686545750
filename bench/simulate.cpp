#include "bench/simulate.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/base/median.h"
#include "starling/base/stopwatch.h"
#include "starling/launch/cpus.h"
#include "starling/report/table.h"
#include "starling/simulate/objective_registry.h"
#include "starling/simulate/training.h"
#include "tool/program.h"
#include "tool/progress.h"

namespace starling::embedded {
std::string_view peer_numpy();
}

namespace starling::bench {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr Rank kNodes = 300;
constexpr std::size_t kDim = 100;
constexpr int kSamples = 100;
constexpr double kMostOverGradient = 1.4;  // bars
constexpr double kLeastOverNumpy = 3;

struct SimulateBenchOptions {
  int rounds = 15;
  Step steps = 100;
  int threads = 0;  // all cores
  bool numpy = true;
  bool json = false;
};

// Seconds per step of all nodes.
struct Round {
  double gradient = 0, training = 0;
  std::optional<double> numpy;
};

// Like numpy's program: a turn counts with its best fifth, whatever else the machine does.
template <typename Turn>
double best_of_five(const Turn& turn) {
  double best = turn();
  for (int i = 1; i < 5; ++i) best = std::min(best, turn());
  return best;
}

// Only the gradients: each thread computes its share of the nodes and waits for nothing.
double gradient_alone(const Objective& objective, Step steps, int threads) {
  const auto begin = Clock::now();
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread)
    all.emplace_back([&, thread] {
      std::vector<double> x(objective.dim(), 0.01), out(objective.dim());
      for (Step step = 0; step < steps; ++step)
        for (Rank node = thread * kNodes / threads; node < (thread + 1) * kNodes / threads; ++node)
          objective.gradient(node, step, std::span<const double>(x), std::span<double>(out));
    });
  for (std::thread& thread : all) thread.join();
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(steps);
}

double training(const Objective& objective, Step steps, int threads) {
  TrainingOptions options;
  options.method = "dsgd-atc";
  options.topology = "exponential";
  options.lr = 0.1;
  options.steps = steps;
  options.threads = threads;
  options.points = 2;  // evaluations are not measured
  return run_training(objective, options).wall_seconds / static_cast<double>(steps);
}

// Debian's numpy belongs to Debian's python, which may not be the first one in PATH.
std::optional<std::string> python_with_numpy() {
  for (const auto& candidate : {in_path("python3"), std::optional<std::string>("/usr/bin/python3")})
    if (candidate && run_program({*candidate, "-c", "import numpy"}, 60s).succeeded()) return candidate;
  return std::nullopt;
}

double numpy(const std::string& python, int threads) {
  const auto run = run_successfully({"/usr/bin/env", fmt::format("OPENBLAS_NUM_THREADS={}", threads),
                                     fmt::format("OMP_NUM_THREADS={}", threads), python, "-c",
                                     std::string(embedded::peer_numpy()), "--nodes", std::to_string(kNodes),
                                     "--dim", std::to_string(kDim), "--samples", std::to_string(kSamples)},
                                    {}, 120s);
  return nlohmann::json::parse(run.out).at("step").get<double>();
}

void show(const std::vector<Round>& rounds, const SimulateBenchOptions& options, int threads) {
  std::vector<double> gradients, steps, peers, over, faster;
  for (const Round& round : rounds) {
    gradients.push_back(round.gradient);
    steps.push_back(round.training);
    over.push_back(round.training / round.gradient);
    if (!round.numpy) continue;
    peers.push_back(*round.numpy);
    faster.push_back(*round.numpy / round.training);
  }
  const double ratio = median(over);
  if (options.json) {
    JsonWriter json(std::cout);
    json.begin_object().member("nodes", kNodes).member("dim", kDim).member("samples", kSamples);
    json.member("threads", threads)
        .member("gradient", gradients)
        .member("training", steps)
        .member("numpy", peers);
    json.member("over_gradient", ratio).key("times_numpy");
    if (faster.empty())
      json.null();
    else
      json.value(median(faster));
    json.end_object();
    return;
  }
  Table table({{"what", Align::left},
               {"a step", Align::right},
               {"ratio", Align::right},
               {"bar", Align::right},
               {"met", Align::left}});
  table.title(fmt::format(
      "simulate train, logistic regression: {} nodes, d = {}, {} samples each, float64, {} threads", kNodes,
      kDim, kSamples, threads));
  table.row({"gradients alone", human_time(median(gradients)), "", "", ""});
  table.row({"dsgd-atc on exponential, over that", human_time(median(steps)), fmt::format("{:.2f}", ratio),
             fmt::format("{:.1f}", kMostOverGradient), ratio <= kMostOverGradient ? "yes" : "no"});
  if (faster.empty())
    table.row({"numpy, times its speed", "-", "-", fmt::format("{:.0f}x", kLeastOverNumpy), "not measured"});
  else
    table.row({"numpy, times its speed", human_time(median(peers)), fmt::format("{:.1f}x", median(faster)),
               fmt::format("{:.0f}x", kLeastOverNumpy), median(faster) >= kLeastOverNumpy ? "yes" : "no"});
  table.footnote(
      fmt::format("medians of {} interleaved rounds; numpy: batched matrix products, the faster of matmul "
                  "and einsum, of one thread and {}",
                  rounds.size(), threads));
  std::cout << table.text();
}

void run(const SimulateBenchOptions& options) {
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(launch::allowed_cpus().size());
  const ObjectivePtr objective =
      make_objective(fmt::format("logistic(samples={})", kSamples), kNodes, kDim, 1);
  objective->least_value();  // once, outside the measurement
  std::optional<std::string> python;
  if (options.numpy && !(python = python_with_numpy()))
    throw Error("no python3 here has numpy to compare with (Debian: python3-numpy); see --alone");
  // More threads slow down small products; numpy gets the better number.
  int numpy_threads = threads;
  if (python && threads > 1 && numpy(*python, 1) < numpy(*python, threads)) numpy_threads = 1;
  std::vector<Round> rounds;
  Progress progress;
  for (int number = 0; number < options.rounds; ++number) {
    progress.show(fmt::format("round {}/{}", number + 1, options.rounds));
    Round round;
    round.gradient = best_of_five([&] { return gradient_alone(*objective, options.steps, threads); });
    round.training = best_of_five([&] { return training(*objective, options.steps, threads); });
    if (python) round.numpy = numpy(*python, numpy_threads);
    rounds.push_back(round);
  }
  progress.clear();
  show(rounds, options, threads);
}

}  // namespace

void add_bench_simulate(CLI::App& bench) {
  auto options = std::make_shared<SimulateBenchOptions>();
  CLI::App* command =
      bench.add_subcommand("simulate", "Simulated training, beside bare gradients and a numpy program");
  command->add_option("--rounds", options->rounds, "rounds; every contender runs once per round")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--steps", options->steps, "steps per measurement")
      ->capture_default_str()
      ->check(CLI::Range(Step{1}, Step{1'000'000}));
  command
      ->add_option("--threads", options->threads,
                   "threads of Starling, and at most of numpy; 0: one per core")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_flag_callback(
      "--alone", [options] { options->numpy = false; }, "without numpy, which needs python3");
  command->add_flag("--json", options->json, "print JSON");
  command->footer("Example:\n  starling bench simulate --rounds 11");
  command->callback([options] { run(*options); });
}

}  // namespace starling::bench
