#include <algorithm>
#include <benchmark/benchmark.h>
#include <cmath>
#include <string>
#include <vector>

#include "starling/base/median.h"
#include "starling/base/stopwatch.h"
#include "starling/codec/registry.h"
#include "starling/kernel/copy.h"

// Every codec on a block of float32, alternating with a copy of the block (which bypasses the cache if the
// block is too large for it). `of_copy` is the bytes that must move (the block and the message) per second,
// relative to the copy: 1 is the limit of the memory. `block_bytes/s` counts the block alone. Ratios are of
// medians.

namespace starling::bench {
namespace {

// Aligned to a cache line, like parameters in buckets.
template <typename T>
class Aligned {
 public:
  explicit Aligned(std::size_t count) : words_(count * sizeof(T) / sizeof(Line) + 1) {}
  T* data() { return reinterpret_cast<T*>(words_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> words_;
};

// The sum of four uniform numbers, which is normal enough and needs no logarithm per element.
Aligned<float> numbers(std::size_t count) {
  Aligned<float> values(count);
  std::uint32_t state = 1;
  for (std::size_t j = 0; j < count; ++j) {
    float& value = values.data()[j];
    value = -2;
    for (int i = 0; i < 4; ++i) {
      state = state * 1664525 + 1013904223;
      value += static_cast<float>(state >> 8) * 0x1p-24F;
    }
  }
  return values;
}

enum class Call { encode, decode, decode_add };

void codec_block(benchmark::State& state, const std::string& spec, Call call) {
  const CodecPtr codec = make_codec(spec);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::size_t count = bytes / sizeof(float);
  Aligned<float> block = numbers(count), out(count), copy(count);
  const std::size_t message_bytes = codec->encoded_bytes(DType::float32, {.count = count});
  Aligned<std::uint8_t> place(message_bytes);
  const ConstBuffer in(DType::float32, block.data(), count);
  const Buffer decoded(DType::float32, out.data(), count);
  const Buffer message(DType::uint8, place.data(), message_bytes);
  codec->encode(in, 0, {}, message);
  std::vector<double> times, copies;
  for (auto _ : state) {
    copies.push_back(seconds_of([&] { copy_bytes(copy.data(), in); }));
    times.push_back(seconds_of([&] {
      if (call == Call::encode) codec->encode(in, 0, {}, message);
      if (call == Call::decode) codec->decode(message, 0, decoded);
      if (call == Call::decode_add) codec->decode_add(message, 0, 0.5, decoded);
    }));
    state.SetIterationTime(times.back());
  }
  const auto block_bytes = static_cast<double>(bytes);
  const double moved = block_bytes * (call == Call::decode_add ? 2 : 1) + static_cast<double>(message_bytes);
  const double time = median(times);
  state.counters["of_copy"] = moved / time / (2 * block_bytes / median(copies));
  state.counters["block_bytes/s"] =
      benchmark::Counter(block_bytes / time, benchmark::Counter::kDefaults, benchmark::Counter::kIs1000);
  state.counters["copy_bytes/s"] = benchmark::Counter(
      2 * block_bytes / median(copies), benchmark::Counter::kDefaults, benchmark::Counter::kIs1000);
}

const bool kEnlisted = [] {
  for (const CodecFamily& family : codec_families())
    for (const auto& [name, call] :
         {std::pair{"/encode", Call::encode}, {"/decode", Call::decode}, {"/decode_add", Call::decode_add}})
      benchmark::RegisterBenchmark(("codec/" + family.name + name).c_str(), codec_block, family.name, call)
          ->Arg(1 << 20)
          ->Arg(64 << 20)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
  return true;
}();

}  // namespace
}  // namespace starling::bench
