#include <benchmark/benchmark.h>

#include "starling/topology/mixer.h"
#include "starling/topology/registry.h"

// One consensus round of all ranks, and one rank's exchange. `bytes/s` counts one read and one write of every
// value, for comparison with the memory copy at the end.

namespace starling::bench {
namespace {

void one_round(benchmark::State& state, const char* name) {
  const auto n = static_cast<Rank>(state.range(0));
  Mixer mixer(make_schedule(name, n));
  mixer.start(std::vector<double>(static_cast<std::size_t>(n), 1.0));
  for (auto _ : state) mixer.advance();
  state.SetBytesProcessed(state.iterations() * n * 16);
}

void one_exchange(benchmark::State& state, const char* name) {
  const auto n = static_cast<Rank>(state.range(0));
  const SchedulePtr schedule = make_schedule(name, n);
  Exchange exchange;
  Step step = 0;
  for (auto _ : state) {
    schedule->exchange(step, static_cast<Rank>(step % n), exchange);
    benchmark::DoNotOptimize(exchange.sources.data());
    ++step;
  }
}

void memory_copy(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const std::vector<double> from(n, 1.0);
  std::vector<double> to(n);
  for (auto _ : state) {
    std::copy(from.begin(), from.end(), to.begin());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 16);
}

#define ROUND(name) BENCHMARK_CAPTURE(one_round, name, name)->Arg(4900)->Arg(1'000'000)
ROUND("one-peer-exponential");
ROUND("od-equidyn");
ROUND("ceca");
ROUND("exponential");
ROUND("ou-equidyn");
ROUND("random-matching");
ROUND("base(k=1)");
BENCHMARK(memory_copy)->Arg(4900)->Arg(1'000'000);

#define EXCHANGE(name) BENCHMARK_CAPTURE(one_exchange, name, name)->Arg(4900)->Arg(10'000'000)
EXCHANGE("ring");
EXCHANGE("exponential");
EXCHANGE("one-peer-exponential");
EXCHANGE("od-equidyn");
EXCHANGE("u-equistatic");
EXCHANGE("ceca");
EXCHANGE("ou-equidyn");
EXCHANGE("random-matching");
EXCHANGE("base(k=2)");
EXCHANGE("torus");

}  // namespace
}  // namespace starling::bench
