#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstring>
#include <string>
#include <vector>

#include "starling/base/median.h"
#include "starling/base/stopwatch.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"
#include "starling/kernel/update.h"

// The kernels relative to the speed of memory, alternating, so that noise affects both. `bytes/s` counts
// every block that is read or written once. `of_copy`: that relative to the bytes/s of memcpy on blocks of
// the same size. `of_pass`: relative to a plain loop that reads and writes the same blocks and only ORs
// words, the ceiling of a pass. Ratios are of medians.

namespace starling::bench {
namespace {

using Block = std::vector<std::uint64_t>;

// Reads all sources and writes `out`, word by word: the minimum cost of a pass.
template <std::size_t kSources>
void plain_pass(Block& out, const std::vector<Block>& sources) {
  const std::uint64_t* from[kSources];
  for (std::size_t s = 0; s < kSources; ++s) from[s] = sources[s].data();
  std::uint64_t* to = out.data();
  for (std::size_t i = 0, words = out.size(); i < words; ++i) {
    std::uint64_t word = from[0][i];
    for (std::size_t s = 1; s < kSources; ++s) word |= from[s][i];
    to[i] = word;
  }
}

// Runs `kernel(out, sources)`, alternating with a copy and a plain pass.
template <std::size_t kSources, typename Kernel>
void beside_the_ceiling(benchmark::State& state, bool in_place, const Kernel& kernel) {
  const auto words = static_cast<std::size_t>(state.range(0)) / sizeof(std::uint64_t);
  std::vector<Block> sources(kSources,
                             Block(words, 0x3F803F803F803F80U));  // 1.0 as float32 and bfloat16, nearly
  Block separate(words);
  Block& out = in_place ? sources[0] : separate;
  std::vector<double> kernels, copies, passes;
  for (auto _ : state) {
    copies.push_back(seconds_of(
        [&] { std::memcpy(separate.data(), sources.back().data(), words * sizeof(std::uint64_t)); }));
    const auto run_kernel = [&] { kernels.push_back(seconds_of([&] { kernel(out, sources); })); };
    if (copies.size() % 2 == 0)
      run_kernel();  // before the pass or after it: neither always finds the
                     // warmer cache
    passes.push_back(seconds_of([&] { plain_pass<kSources>(out, sources); }));
    if (copies.size() % 2 != 0) run_kernel();
    state.SetIterationTime(kernels.back());
  }
  const auto blocks = static_cast<double>(kSources + 1);
  const double time = median(kernels);
  state.counters["bytes/s"] = benchmark::Counter(blocks * static_cast<double>(state.range(0)) / time,
                                                 benchmark::Counter::kDefaults, benchmark::Counter::kIs1000);
  state.counters["of_copy"] = blocks / time / (2 / median(copies));
  state.counters["of_pass"] = median(passes) / time;
}

template <std::size_t kTerms>
void combine_blocks(benchmark::State& state, DType dtype, bool in_place) {
  beside_the_ceiling<kTerms>(state, in_place, [&](Block& out, const std::vector<Block>& sources) {
    Term terms[kTerms];
    for (std::size_t t = 0; t < kTerms; ++t)
      terms[t] = {sources[t].data(), 1.0 / static_cast<double>(kTerms)};
    combine(dtype, out.data(), terms, out.size() * sizeof(std::uint64_t) / size_of(dtype));
  });
}

void reduce_blocks(benchmark::State& state, DType dtype, Reduction reduction) {
  beside_the_ceiling<2>(state, true, [&](Block& out, const std::vector<Block>& sources) {
    reduce(reduction, dtype, out.data(), sources[1].data(),
           out.size() * sizeof(std::uint64_t) / size_of(dtype));
  });
}

// The work of a training step on a block: the average with a neighbor's, the optimizer, and a copy for the
// next exchange, in one pass and in three. `of_copy` as above, for one pass.
void update_block(benchmark::State& state, bool adam) {
  const auto count = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  const std::vector<float> half(count, 0.5F);
  std::vector<float> x = half, theirs = half, gradient = half, m = half, v = half, copy = half;
  const Term terms[] = {{x.data(), 0.5}, {theirs.data(), 0.5}};
  const Term own[] = {{x.data(), 1}};
  const auto update = [&](std::span<const Term> from, float* also) {
    const auto of = [&](float* values) { return Buffer(DType::float32, values, count); };
    const UpdatePass pass{from, of(gradient.data()), 1, of(x.data()), of(also)};
    if (adam)
      adam_update(pass, {}, of(m.data()), of(v.data()), 10);
    else
      sgd_update(pass, {.lr = 1e-6, .momentum = 0.9}, of(m.data()), false);
  };
  std::vector<double> fused, passes, copies;
  for (auto _ : state) {
    copies.push_back(seconds_of([&] { std::memcpy(copy.data(), theirs.data(), count * sizeof(float)); }));
    fused.push_back(seconds_of([&] { update(terms, copy.data()); }));
    passes.push_back(seconds_of([&] {
      combine(DType::float32, x.data(), terms, count);
      update(own, nullptr);
      copy_bytes(copy.data(), x.data(), count * sizeof(float));
    }));
    state.SetIterationTime(fused.back());
  }
  const double moved = adam ? 9 : 7;  // blocks read and written
  const double time = median(fused);
  state.counters["bytes/s"] = benchmark::Counter(moved * static_cast<double>(state.range(0)) / time,
                                                 benchmark::Counter::kDefaults, benchmark::Counter::kIs1000);
  state.counters["of_copy"] = moved / time / (2 / median(copies));
  state.counters["over_three_passes"] = median(passes) / time;
}

template <typename Function, typename... Arguments>
void enlist(const std::string& name, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), function, arguments...)
      ->Arg(1 << 20)
      ->Arg(100 << 20)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

template <std::size_t kTerms>
void enlist_combine(DType dtype) {
  const std::string text = "combine/" + name(dtype) + "/terms:" + std::to_string(kTerms);
  enlist(text, combine_blocks<kTerms>, dtype, false);
  enlist(text + "/in_place", combine_blocks<kTerms>, dtype, true);
}

const bool kEnlisted = [] {
  enlist_combine<2>(DType::float32);
  enlist_combine<3>(DType::float32);
  enlist_combine<8>(DType::float32);
  enlist_combine<2>(DType::bfloat16);
  enlist_combine<3>(DType::bfloat16);
  enlist_combine<2>(DType::float16);
  enlist("reduce/float32/sum", reduce_blocks, DType::float32, Reduction::sum);
  enlist("reduce/float32/max", reduce_blocks, DType::float32, Reduction::max);
  enlist("reduce/bfloat16/sum", reduce_blocks, DType::bfloat16, Reduction::sum);
  enlist("reduce/int32/sum", reduce_blocks, DType::int32, Reduction::sum);
  enlist("update/sgd", update_block, false);
  enlist("update/adam", update_block, true);
  return true;
}();

}  // namespace
}  // namespace starling::bench
