#include "bench/async.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "bench/contenders.h"
#include "bench/ranks.h"
#include "bench/work.h"
#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/base/median.h"
#include "starling/fabric/local/local.h"
#include "starling/launch/cpus.h"
#include "starling/launch/environment.h"
#include "starling/method/drive.h"
#include "starling/method/registry.h"
#include "starling/report/table.h"
#include "tool/command.h"
#include "tool/progress.h"

namespace starling::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kLeastKept = 0.95;  // the bar
constexpr int kSlowness = 10;        // times as long as the others' steps
constexpr int kWarmUp = 9;           // steps; memory has been touched by then

struct AsyncBenchOptions {
  std::vector<std::string> methods = {"win-put", "async-push-sum", "ad-psgd", "async-average", "dsgd-atc"};
  std::string topology = "ring";
  int ranks = 2;
  double bytes = 1e6;
  double compute_ms = 5;
  int steps = 200;
  int rounds = 5;
  bool strict = false;
  bool json = false;
  std::string json_file;
};

/// The result of one run: the mean over the ranks that were not slowed.
struct Measurement {
  double rate = 0;  // steps per second
  double age = 0;   // of the values used, in steps
};

struct Result {
  std::string method;
  bool asynchronous = false;
  std::vector<Measurement> undisturbed;
  std::vector<Measurement> disturbed;

  static std::vector<double> each(const std::vector<Measurement>& measurements, double Measurement::*what) {
    std::vector<double> values;
    for (const Measurement& measurement : measurements) values.push_back(measurement.*what);
    return values;
  }
  /// The fraction of the speed that is left: the median of the rounds' ratios.
  double kept() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < disturbed.size(); ++i)
      ratios.push_back(disturbed[i].rate / undisturbed[i].rate);
    return median(ratios);
  }
};

// Computes for this long, whatever else runs on the core.
void compute_for(double seconds) {
  const auto end = Clock::now() + Seconds(seconds);
  while (Clock::now() < end) {
  }
}

/// Runs one rank; returns its steps per second and the mean age of the values that it used.
std::vector<double> be_rank(const std::string& job, const AsyncBenchOptions& options,
                            const std::string& method, const Work& place, int rank, bool disturbed) {
  take_place(place, rank);
  Flock flock(join_local(job, rank, options.ranks));
  std::vector<float> x(static_cast<std::size_t>(options.bytes) / sizeof(float)), gradient(x.size(), 1.0F);
  Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                        {.method = method, .topology = options.topology, .optimizer = "sgd(lr=1e-6)"});
  const auto step = [&] {
    driver.begin();
    compute_for(options.compute_ms / 1000);
    driver.finish();
  };
  // The median step, not the last one: a step that the machine delayed would delay ten times as long.
  std::vector<double> first;
  for (int i = 0; i < kWarmUp; ++i) {
    const auto from = Clock::now();
    step();
    first.push_back(Seconds(Clock::now() - from).count());
  }
  const Seconds nap((kSlowness - 1) * median(first));
  flock.barrier();

  // The slow rank ends when the others do; ranks that wait for it make as few steps as it does.
  const bool slow = disturbed && rank + 1 == options.ranks;
  const bool few = slow || (disturbed && !driver.method().asynchronous());
  const int steps = few ? std::max(1, options.steps / kSlowness) : options.steps;
  const auto begin = Clock::now();
  for (int i = 0; i < steps; ++i) {
    step();
    if (slow) std::this_thread::sleep_for(nap);
  }
  const double seconds = Seconds(Clock::now() - begin).count();
  const double age = driver.staleness().mean();
  driver.settle();
  flock.barrier();
  return {steps / seconds, age};
}

Measurement measure_async(const AsyncBenchOptions& options, const std::string& method,
                          const std::vector<int>& cpus, bool disturbed) {
  Work place;
  place.ranks = options.ranks;
  place.cpus = cpus;
  const std::string job = launch::random_token();
  const auto limit = std::chrono::seconds(60 + static_cast<int>(options.steps * options.compute_ms / 50));
  const auto by_rank = run_ranks(options.ranks, 2, limit, [&](int rank, const auto& /*meet*/) {
    return be_rank(job, options, method, place, rank, disturbed);
  });
  Measurement mean;
  const int others = options.ranks - 1;
  for (int rank = 0; rank < others; ++rank) {
    mean.rate += by_rank[static_cast<std::size_t>(rank)].at(0) / others;
    mean.age += by_rank[static_cast<std::size_t>(rank)].at(1) / others;
  }
  return mean;
}

/// Empty if nothing is promised: for methods that wait, and if ranks share cores.
std::optional<bool> met(const Result& result, const AsyncBenchOptions& options, std::size_t cores) {
  if (!result.asynchronous || static_cast<std::size_t>(options.ranks) > cores) return std::nullopt;
  return result.kept() >= kLeastKept;
}

void print_table(const std::vector<Result>& results, const AsyncBenchOptions& options, std::size_t cores) {
  Table table({{"method", Align::left},
               {"steps/s", Align::right},
               {"beside a slow rank", Align::right},
               {"kept", Align::right},
               {"age", Align::right},
               {"bar", Align::right},
               {"met", Align::left}});
  table.title(fmt::format("{} ranks on {} core{}, {} each, one of them {} times as slow: the others' steps",
                          options.ranks, cores, cores == 1 ? "" : "s", human_bytes(options.bytes),
                          kSlowness));
  for (const Result& result : results) {
    const auto verdict = met(result, options, cores);
    const auto rate = [](const std::vector<Measurement>& measurements) {
      return compact(median(Result::each(measurements, &Measurement::rate)), 4);
    };
    table.row(
        {result.method, rate(result.undisturbed), rate(result.disturbed),
         fmt::format("{:.1f} %", 100 * result.kept()),
         result.asynchronous ? compact(median(Result::each(result.disturbed, &Measurement::age)), 3) : "-",
         verdict ? fmt::format("{:.0f} %", 100 * kLeastKept) : "-",
         verdict ? (*verdict ? "yes" : "no") : "-"});
  }
  table.footnote(
      fmt::format("medians of {} interleaved round{}; a step computes for {}; age: in steps, of "
                  "what was used beside the slow rank",
                  options.rounds, options.rounds == 1 ? "" : "s", human_time(options.compute_ms / 1000)));
  if (static_cast<std::size_t>(options.ranks) > cores)
    table.footnote("more ranks than cores: nothing is promised, for the slow rank leaves them its core.");
  std::cout << table.text(color_wanted());
}

void write_json(std::ostream& out, const std::vector<Result>& results, const AsyncBenchOptions& options,
                std::size_t cores) {
  JsonWriter json(out);
  json.begin_object().member("rounds", options.rounds).member("ranks", options.ranks).member("cores", cores);
  json.member("bytes", options.bytes).member("compute_ms", options.compute_ms);
  json.member("steps", options.steps).member("slowness", kSlowness).key("methods").begin_array();
  for (const Result& result : results) {
    json.begin_object().member("method", result.method).member("asynchronous", result.asynchronous);
    json.member("undisturbed", Result::each(result.undisturbed, &Measurement::rate));
    json.member("disturbed", Result::each(result.disturbed, &Measurement::rate));
    json.member("age", Result::each(result.disturbed, &Measurement::age)).member("kept", result.kept());
    json.key("met");
    const auto verdict = met(result, options, cores);
    verdict ? json.value(*verdict) : json.null();
    json.end_object();
  }
  json.end_array().end_object();
  out << '\n';
}

void run(const AsyncBenchOptions& options) {
  const std::vector<int> cpus = launch::allowed_cpus();
  std::vector<Result> results;
  for (const std::string& method : options.methods) {
    const MethodPtr made = make_method(method);
    // reports unsuitable combinations before the start
    schedule_for(*made, {options.ranks, options.ranks}, options.topology, 0);
    check_optimizer(*made, "sgd");
    results.push_back({method, made->asynchronous(), {}, {}});
  }
  if (!options.json_file.empty()) check_writable(options.json_file);
  Progress progress;
  for (int round = 0; round < options.rounds; ++round)
    for (Result& result : results)
      for (const bool disturbed : {round % 2 == 1, round % 2 == 0}) {
        progress.show(fmt::format("round {} of {}: {}{}", round + 1, options.rounds, result.method,
                                  disturbed ? " beside a slow rank" : ""));
        (disturbed ? result.disturbed : result.undisturbed)
            .push_back(measure_async(options, result.method, cpus, disturbed));
      }
  progress.clear();
  if (!options.json_file.empty()) {
    std::ostringstream text;
    write_json(text, results, options, cpus.size());
    write_file(options.json_file, text.str());
  }
  if (options.json && options.json_file.empty())
    write_json(std::cout, results, options, cpus.size());
  else
    print_table(results, options, cpus.size());
  for (const Result& result : results)
    if (options.strict && result.asynchronous && met(result, options, cpus.size()) != true) exit_status() = 1;
}

}  // namespace

void add_bench_async(CLI::App& bench) {
  auto options = std::make_shared<AsyncBenchOptions>();
  CLI::App* command =
      bench.add_subcommand("async", "Asynchronous methods beside a slow rank: how much the other ranks lose");
  command->add_option("-m,--method", options->methods, "methods; synchronous ones for comparison")
      ->type_name("METHOD")
      ->capture_default_str();
  command->add_option("-t,--topology", options->topology, "topology")
      ->type_name("TOPOLOGY")
      ->capture_default_str();
  command->add_option("-n,--ranks", options->ranks, "processes, the last of which is slow")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  command->add_option("--bytes", options->bytes, "size of a rank's model, such as 25MB")
      ->default_str("1MB")
      ->transform(byte_size())
      ->check(CLI::Range(4.0, 1e11));
  command->add_option("--compute", options->compute_ms, "milliseconds that a gradient takes")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e5));
  command->add_option("--steps", options->steps, "steps per measurement")
      ->capture_default_str()
      ->check(CLI::Range(kSlowness, 1'000'000));
  command->add_option("--rounds", options->rounds, "rounds; every contender runs once per round")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--strict", options->strict,
                    "exit status 1 when an asynchronous method misses the bar (a figure that Starling "
                    "promises) or could not be measured");
  CLI::Option* json =
      command->add_option("--json", options->json_file, "print JSON, or write it to FILE beside the table")
          ->type_name("[FILE]")
          ->expected(0, 1);
  command->footer("Example:\n  starling bench async -n 4 -m win-put dsgd-atc --bytes 25MB --rounds 9");
  command->callback([options, json] {
    options->json = json->count() > 0;
    run(*options);
  });
}

}  // namespace starling::bench
