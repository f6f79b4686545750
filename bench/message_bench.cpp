#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstring>
#include <string>
#include <vector>

#include "starling/base/median.h"
#include "starling/base/random.h"
#include "starling/base/stopwatch.h"
#include "starling/codec/wire_format.h"
#include "starling/flock/block.h"

// The cost of sending a float32 block with fewer bits: `encode` makes the message, `average` mixes a
// neighbor's message into x. Alternates with memcpy of the block. `of_copy`: the bytes that must move (block
// and messages) per second, relative to the copy; `block_bytes/s` counts the block alone. Ratios are of
// medians.

namespace starling::bench {
namespace {

void message_block(benchmark::State& state, const std::string& message, bool average) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::size_t count = bytes / sizeof(float);
  const WireFormatPtr format = make_wire_format(message);
  std::vector<float> x(count), copy(count);
  Random random(1, 2, 3);
  for (float& value : x) value = static_cast<float>(random.uniform() - 0.5);
  std::vector<std::byte> own(format->encoded_bytes(count)), theirs(own.size());
  const Buffer message_buffer(format->dtype(), own.data(), format->encoded_count(count));
  format->encode(buffer_of(x), message_buffer);
  theirs = own;
  const Term neighbor[] = {{theirs.data(), 0.5}};
  std::vector<double> times, copies;
  for (auto _ : state) {
    copies.push_back(seconds_of([&] { std::memcpy(copy.data(), x.data(), bytes); }));
    times.push_back(seconds_of([&] {
      if (average)
        format->combine_around(buffer_of(x), buffer_of(x), message_buffer, neighbor);
      else
        format->encode(buffer_of(x), message_buffer);
    }));
    state.SetIterationTime(times.back());
  }
  const auto block = static_cast<double>(bytes), sent = static_cast<double>(own.size());
  const double moved = average ? 2 * block + 2 * sent : block + sent;
  const double time = median(times), copied = 2 * block / median(copies);
  state.counters["of_copy"] = moved / time / copied;
  const auto rate = [](double value) {
    return benchmark::Counter(value, benchmark::Counter::kDefaults, benchmark::Counter::kIs1000);
  };
  state.counters["block_bytes/s"] = rate(block / time);
  state.counters["copy_bytes/s"] = rate(copied);
}

const bool kMessagesEnlisted = [] {
  for (const std::string message : {"float16", "bfloat16", "int8"})
    for (const bool average : {false, true})
      benchmark::RegisterBenchmark(("message/" + message + (average ? "/average" : "/encode")).c_str(),
                                   message_block, message, average)
          ->Arg(1 << 20)
          ->Arg(64 << 20)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
  return true;
}();

}  // namespace
}  // namespace starling::bench
