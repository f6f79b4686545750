// The promised figures of topologies, each beside the value measured in this run. Step counts are exact and
// determine the exit status; times depend on the machine and are only shown, relative to a plain copy.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <new>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/median.h"
#include "starling/base/stopwatch.h"
#include "starling/report/table.h"
#include "starling/simulate/consensus.h"
#include "starling/topology/mixer.h"
#include "starling/topology/registry.h"

namespace {

std::atomic<std::int64_t> allocations{0};

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace starling::bench {
namespace {

struct StepFigure {
  const char* topology;
  Step least;
  Step most;
};

// Steps to an error of 1e-10 at n = 4900, with the range seen over random starts and draws.
const std::vector<StepFigure> kStepFigures = {
    {"ceca-1p", 13, 13},       {"ceca", 13, 13},         {"ceca(k=2)", 8, 8},
    {"ceca(k=3)", 7, 7},       {"ceca(k=4)", 6, 6},      {"base(k=1)", 23, 23},
    {"base(k=2)", 15, 15},     {"base(k=4)", 8, 8},      {"u-equistatic", 37, 75},
    {"d-equistatic", 50, 77},  {"od-equidyn", 52, 62},   {"random-matching", 66, 67},
    {"ou-equidyn", 76, 81},    {"exponential", 93, 128}, {"one-peer-exponential", 130, 143},
    {"torus", 11'400, 12'400}, {"grid", 43'700, 48'900}, {"ring", 32'900'000, 36'200'000},
};

bool steps_at_4900() {
  Table table(
      {{"topology", Align::left}, {"steps", Align::right}, {"promised", Align::right}, {"", Align::left}});
  table.title("Steps to a consensus error of 1e-10, n = 4900");
  bool all = true;
  for (const StepFigure& figure : kStepFigures) {
    const ConsensusResult result = run_consensus(make_schedule(figure.topology, 4900));
    const bool met = result.steps >= figure.least && result.steps <= figure.most;
    all = all && met;
    table.row({figure.topology, std::to_string(result.steps),
               figure.least == figure.most ? std::to_string(figure.least)
                                           : fmt::format("{}..{}", figure.least, figure.most),
               fmt::format("{}{}", met ? "met" : "MISSED",
                           result.outcome == ConsensusResult::Outcome::computed ? ", computed by its spectrum"
                                                                                : "")});
  }
  std::cout << table.text() << '\n';
  return all;
}

struct RoundFigure {
  const char* topology;
  Rank n;
  double limit;  // seconds
};

const std::vector<RoundFigure> kRoundFigures = {
    {"od-equidyn", 4900, 10e-6},
    {"one-peer-exponential", 4900, 10e-6},
    {"ceca", 4900, 10e-6},
    {"ou-equidyn", 4900, 50e-6},
    {"random-matching", 4900, 50e-6},
    {"od-equidyn", 1'000'000, 20e-3},
    {"one-peer-exponential", 1'000'000, 20e-3},
    {"ceca", 1'000'000, 20e-3},
    {"exponential", 1'000'000, 20e-3},
    {"ou-equidyn", 1'000'000, 20e-3},
    {"random-matching", 1'000'000, 20e-3},
};

// Rounds and copies alternate, so that noise affects both.
void time_of_a_round() {
  Table table({{"topology", Align::left}, "n", "one round", "promised", "of a copy", {"", Align::left}});
  table.title("One consensus round, one value per rank, one core");
  for (const RoundFigure& figure : kRoundFigures) {
    Mixer mixer(make_schedule(figure.topology, figure.n));
    const std::vector<double> start(static_cast<std::size_t>(figure.n), 1.0);
    mixer.start(start);
    std::vector<double> to(start.size());
    std::vector<double> rounds;
    std::vector<double> copies;
    const int repetitions = figure.n > 100'000 ? 21 : 1001;
    for (int i = 0; i < repetitions; ++i) {
      rounds.push_back(seconds_of([&] { mixer.advance(); }));
      copies.push_back(seconds_of([&] { std::copy(start.begin(), start.end(), to.begin()); }));
    }
    const double round = median(rounds);
    table.row({figure.topology, std::to_string(figure.n), human_time(round), human_time(figure.limit),
               fmt::format("{:.1f}x", round / median(copies)),
               round <= figure.limit ? "met" : "MISSED here"});
  }
  std::cout << table.text() << '\n';
}

void memory_of_a_million() {
  Table table({{"topology", Align::left}, "peak memory", "promised", {"", Align::left}});
  table.title("A process that runs consensus with n = 1,000,000");
  for (const char* name : {"one-peer-exponential", "od-equidyn", "ceca", "exponential", "ring"}) {
    const pid_t child = fork();
    if (child == 0) {
      ConsensusOptions options;
      options.max_steps = std::string(name) == "ring" ? 20 : 1000;  // the ring's steps are computed
      run_consensus(make_schedule(name, 1'000'000), options);
      _exit(0);
    }
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    const double bytes = static_cast<double>(usage.ru_maxrss) * 1024;
    table.row({name, human_bytes(bytes), "100 MB", status == 0 && bytes < 100e6 ? "met" : "MISSED here"});
  }
  std::cout << table.text() << '\n';
}

void exchange_of_one_rank() {
  Table table({{"topology", Align::left}, "n", "one exchange", "promised", "allocations", {"", Align::left}});
  table.title("One rank's exchange, circulant families");
  constexpr int kCalls = 100'000;
  for (const char* name : {"ring", "exponential", "one-peer-exponential", "k-peer-exponential(k=3)",
                           "u-equistatic", "d-equistatic", "od-equidyn", "ceca", "ceca(k=3)"})
    for (const Rank n : {4900, 10'000'000}) {
      const SchedulePtr schedule = make_schedule(name, n);
      Exchange exchange;
      for (Rank rank = 0; rank < 100; ++rank) schedule->exchange(rank, rank, exchange);
      const std::int64_t before = allocations;
      std::vector<double> times;
      for (int block = 0; block < 9; ++block)
        times.push_back(seconds_of([&] {
          for (int i = 0; i < kCalls; ++i) schedule->exchange(i, i % n, exchange);
        }));
      const std::int64_t allocated = allocations - before - 5;  // `times` itself grows five times
      const double each = median(times) / kCalls;
      table.row({name, std::to_string(n), human_time(each), "100 ns",
                 std::to_string(std::max<std::int64_t>(0, allocated)),
                 each < 100e-9 && allocated <= 0 ? "met" : "MISSED here"});
    }
  std::cout << table.text() << '\n';
}

}  // namespace
}  // namespace starling::bench

int main() {
  // first, because children inherit the memory that the parent has touched
  starling::bench::memory_of_a_million();
  const bool met = starling::bench::steps_at_4900();
  starling::bench::time_of_a_round();
  starling::bench::exchange_of_one_rank();
  return met ? 0 : 1;
}
