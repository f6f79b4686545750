#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <numeric>
#include <sstream>

#include "bench/torch/command.h"
#include "bench/torch/worker.h"
#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/launch/cpus.h"
#include "starling/report/table.h"
#include "tool/program.h"
#include "tool/progress.h"
#include "tool/torch/command.h"
#include "tool/worker_group.h"

namespace starling::embedded {
std::string_view peer_ddp();
}

namespace starling::bench {
namespace {

using namespace std::chrono_literals;

struct TrainingBenchOptions {
  int rounds = 21;
  double seconds = 0.4;  // of one contender in one round
  std::string only;
  bool json = false;
  bool quick = false;
  bool peers = true;
};

struct Case {
  std::string work;
  Rank ranks;
  double most_over_alone;  // promised maxima
  double least_over_ddp;
};

const std::vector<Case> kCases = {
    {"lenet", 2, 1.05, 1.6},    {"lenet", 4, 1.05, 1.9}, {"resnet20", 2, 1.04, 1.0},
    {"resnet20", 4, 1.04, 1.0}, {"mlp", 2, 1.08, 1.25},  {"mlp", 4, 1.08, 1.35},
};
constexpr double kBucketSizes[] = {1, 25, 100};  // of DDP, in megabytes

constexpr const char* kAlone = "alone -";
constexpr const char* kOurs = "dsgd-awc one-peer-exponential";
constexpr const char* kAllreduce = "allreduce -";

// Seconds per step of one contender, by round: the mean over the ranks.
struct Times {
  std::vector<double> total;
  std::vector<double> waiting;
};

// Debian's torch belongs to Debian's python, which may not be the first one in PATH.
std::string python_with_torch() {
  for (const auto& candidate : {in_path("python3"), std::optional<std::string>("/usr/bin/python3")})
    if (candidate && run_program({*candidate, "-c", "import torch.distributed"}, 60s).succeeded())
      return *candidate;
  throw Error(
      "no python3 here has torch, so there is no DDP to compare with (Debian: python3-torch); see --alone");
}

class Arena {
 public:
  Arena(const Case& what, const TrainingBenchOptions& options) : cpus_(launch::allowed_cpus()) {
    if (cpus_.size() > 2) cpus_.resize(2);  // the bars hold for two cores
    const int threads = std::max(1, static_cast<int>(cpus_.size()) / what.ranks);
    const std::string threads_text = std::to_string(threads);
    ours_ = std::make_unique<WorkerGroup>(
        "starling", std::vector<std::string>{own_path(), "worker", what.work, threads_text}, what.ranks,
        cpus_, training_environment(threads));
    names_ = {kAlone, kOurs, kAllreduce};
    if (!options.peers) return;
    const std::string python = python_with_torch();
    const std::string batch = std::to_string(training_work(what.work).batch);
    for (const double megabytes : kBucketSizes) {
      const std::vector<std::string> words = {python,      "-c",  std::string(embedded::peer_ddp()),
                                              what.work,   batch, std::to_string(megabytes),
                                              threads_text};
      names_.push_back(fmt::format("DDP {:.0f} MB", megabytes));
      peers_.push_back(std::make_unique<WorkerGroup>(names_.back(), words, what.ranks, cpus_,
                                                     training_environment(threads)));
    }
  }

  const std::vector<std::string>& names() const { return names_; }

  // Mean over the ranks of (seconds, waited) for one step.
  std::pair<double, double> run(std::size_t contender, int steps) {
    const bool ours = contender < 3;
    WorkerGroup& group = ours ? *ours_ : *peers_[contender - 3];
    group.tell(fmt::format("{} {}", ours ? names_[contender] : "steps", steps));
    double total = 0, waited = 0;
    const auto lines = group.answers(300s);
    for (const std::string& line : lines) {
      std::istringstream numbers(line);
      double seconds = 0, waiting = 0;
      numbers >> seconds >> waiting;
      total += seconds;
      waited += waiting;
    }
    const double share = static_cast<double>(lines.size()) * steps;
    return {total / share, waited / share};
  }

 private:
  std::vector<int> cpus_;
  std::vector<std::string> names_;
  std::unique_ptr<WorkerGroup> ours_;
  std::vector<std::unique_ptr<WorkerGroup>> peers_;
};

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The median of the rounds' ratios and where its 95 % bounds are: the order statistics of the sign test.
struct Ratio {
  double median = 0, lower = 0, upper = 0;
};
Ratio paired(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < over.size(); ++i) ratios.push_back(over[i] / under[i]);
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  const auto below = static_cast<std::size_t>(std::max(0.0, std::floor(n / 2 - 0.98 * std::sqrt(n))));
  return {middle(ratios), ratios[below], ratios[ratios.size() - 1 - below]};
}

struct Result {
  Case what;
  int steps = 0;
  double alone = 0, waiting = 0;
  Ratio over_alone, net_over_alone, over_ddp, allreduce_over_ddp;
  std::string best_ddp;
  bool peers = false;
};

Result measure(const Case& what, const TrainingBenchOptions& options, Progress& progress) {
  Arena arena(what, options);
  std::vector<Times> times(arena.names().size());
  const auto show = [&](const std::string& text) {
    progress.show(fmt::format("{} n={}: {}", what.work, what.ranks, text));
  };
  for (std::size_t c = 0; c < times.size(); ++c) {
    show("warming up " + arena.names()[c]);
    arena.run(c, 3);
  }
  Result result;
  result.what = what;
  const double step = arena.run(0, options.quick ? 1 : 5).first;
  result.steps = options.quick ? 2 : std::max(2, static_cast<int>(options.seconds / step));
  const int rounds = options.quick ? 2 : options.rounds;
  for (int round = 0; round < rounds; ++round)
    for (std::size_t turn = 0; turn < times.size(); ++turn) {
      const std::size_t c = (turn + static_cast<std::size_t>(round)) % times.size();
      show(fmt::format("round {} of {}, {}", round + 1, rounds, arena.names()[c]));
      const auto [seconds, waited] = arena.run(c, result.steps);
      times[c].total.push_back(seconds);
      times[c].waiting.push_back(waited);
    }
  std::vector<double> net;
  for (std::size_t i = 0; i < times[1].total.size(); ++i)
    net.push_back(times[1].total[i] - times[1].waiting[i]);
  result.alone = middle(times[0].total);
  result.waiting = middle(times[1].waiting);
  result.over_alone = paired(times[1].total, times[0].total);
  result.net_over_alone = paired(net, times[0].total);
  result.peers = options.peers;
  if (!options.peers) return result;
  std::size_t best = 3;
  for (std::size_t c = 4; c < times.size(); ++c)
    if (middle(times[c].total) < middle(times[best].total)) best = c;
  result.best_ddp = arena.names()[best];
  result.over_ddp = paired(times[best].total, times[1].total);
  result.allreduce_over_ddp = paired(times[best].total, times[2].total);
  return result;
}

bool met(const Result& result) {
  return result.net_over_alone.upper <= result.what.most_over_alone &&
         (!result.peers ||
          (result.over_ddp.lower >= result.what.least_over_ddp && result.allreduce_over_ddp.median >= 1));
}

std::string ratio_text(const Ratio& ratio) {
  return fmt::format("{:.3f} ({:.3f}-{:.3f})", ratio.median, ratio.lower, ratio.upper);
}

void print(const std::vector<Result>& results, const TrainingBenchOptions& options) {
  Table table({{"network", Align::left},
               {"n", Align::right},
               {"alone", Align::right},
               {"dsgd-awc / alone", Align::right},
               {"with waiting", Align::right},
               {"bar", Align::right},
               {"x DDP", Align::right},
               {"bar", Align::right},
               {"allreduce x DDP", Align::right},
               {"best DDP", Align::left},
               {"met", Align::left}});
  table.title("Training steps on two cores: medians of interleaved rounds, with 95 % bounds");
  for (const Result& result : results)
    table.row({result.what.work, std::to_string(result.what.ranks), human_time(result.alone),
               ratio_text(result.net_over_alone), ratio_text(result.over_alone),
               fmt::format("{:.2f}", result.what.most_over_alone),
               result.peers ? ratio_text(result.over_ddp) : "-",
               fmt::format("{:.2f}", result.what.least_over_ddp),
               result.peers ? ratio_text(result.allreduce_over_ddp) : "-", result.best_ddp,
               options.quick ? "-"
               : met(result) ? "yes"
                             : "no"});
  table.footnote("alone: the same processes, each with torch's own SGD and no communication");
  table.footnote("dsgd-awc / alone leaves the waiting for slower neighbors out, the next column has it in");
  if (results.front().peers)
    table.footnote("DDP: DistributedDataParallel on gloo from Python, the best of 1, 25 and 100 MB buckets");
  std::cout << table.text(color_wanted());
}

void print_json(const std::vector<Result>& results) {
  JsonWriter json(std::cout);
  json.begin_array();
  const auto ratio = [&](const std::string& name, const Ratio& value) {
    json.member(name, std::vector<double>{value.median, value.lower, value.upper});
  };
  for (const Result& result : results) {
    json.begin_object();
    json.key("network").value(result.what.work).key("n").value(result.what.ranks);
    json.key("steps").value(result.steps).key("alone").value(result.alone);
    json.key("waiting").value(result.waiting);
    ratio("over_alone", result.net_over_alone);
    ratio("over_alone_with_waiting", result.over_alone);
    if (result.peers) {
      json.key("best_ddp").value(result.best_ddp);
      ratio("over_ddp", result.over_ddp);
      ratio("allreduce_over_ddp", result.allreduce_over_ddp);
    }
    json.end_object();
  }
  json.end_array();
  std::cout << '\n';
}

void run(const TrainingBenchOptions& options) {
  std::vector<Result> results;
  Progress progress;
  for (const Case& what : kCases) {
    const std::string label = fmt::format("{} n={}", what.work, what.ranks);
    if (label.find(options.only) != std::string::npos) results.push_back(measure(what, options, progress));
  }
  progress.clear();
  if (results.empty())
    throw InvalidArgument(
        fmt::format("no case contains '{}'; a case is named like 'lenet n=2'", options.only));
  options.json ? print_json(results) : print(results, options);
}

}  // namespace

void add_bench_training(CLI::App& bench) {
  auto options = std::make_shared<TrainingBenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "training", "Training steps beside no communication at all, and beside PyTorch's DDP");
  command->add_option("--rounds", options->rounds, "interleaved rounds")
      ->check(CLI::Range(3, 1000))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "seconds per measurement")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  command->add_option("--only", options->only, "cases whose name contains this, such as 'lenet n=2'");
  command->add_flag("--json", options->json, "print JSON");
  command->add_flag("--quick", options->quick, "a few steps of every case, only to check that it works");
  command->add_flag_callback(
      "--alone", [options] { options->peers = false; }, "without DDP, which needs python3 with torch");
  command->footer(
      "Examples:\n  starling bench training --only 'lenet n=2' --rounds 9\n"
      "  starling bench training --quick --alone");
  command->callback([options] { run(*options); });
}

}  // namespace starling::bench
