#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// Shared by all contenders of `starling bench comm`, so that they differ only in the communication:
// arguments, cores, values and time measurement. Header-only and independent of the library, because the
// peers' programs include it, too.

namespace starling::bench {

/// The operation that every rank repeats.
enum class Operation {
  one_peer,     // average with the one neighbor of the one-peer exponential graph's step
  exponential,  // average with all neighbors of the static exponential graph
  allreduce,    // the sum of all
  window_put,   // into the windows of the static exponential graph's neighbors, which are passive
  window_step,  // the same, then the average with the content of the rank's own window
  relay,        // an average along a chain
};

inline constexpr std::string_view kOperationNames[] = {"one-peer",   "exponential", "allreduce",
                                                       "window-put", "window-step", "relay"};

struct Work {
  Operation operation = Operation::one_peer;
  int ranks = 2;
  std::size_t elements = 0;  // float32
  int batches = 1;           // each is timed as a whole
  int per_batch = 1;         // operations
  std::vector<int> cpus;     // all ranks together
};

/// The work as words for a peer's program: OPERATION RANKS ELEMENTS BATCHES PER_BATCH CPU,CPU,...
inline std::vector<std::string> to_arguments(const Work& work) {
  std::string cpus;
  for (const int cpu : work.cpus) cpus += (cpus.empty() ? "" : ",") + std::to_string(cpu);
  return {std::string(kOperationNames[static_cast<std::size_t>(work.operation)]),
          std::to_string(work.ranks),
          std::to_string(work.elements),
          std::to_string(work.batches),
          std::to_string(work.per_batch),
          cpus};
}

template <typename T>
T parse_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw std::invalid_argument("'" + std::string(text) + "' is not a number here");
  return number;
}

inline Work from_arguments(const std::vector<std::string>& words) {
  if (words.size() != 6)
    throw std::invalid_argument("arguments: OPERATION RANKS ELEMENTS BATCHES PER_BATCH CPU,CPU,...");
  const auto* name = std::find(std::begin(kOperationNames), std::end(kOperationNames), words[0]);
  if (name == std::end(kOperationNames)) throw std::invalid_argument("no operation '" + words[0] + "'");
  Work work;
  work.operation = static_cast<Operation>(name - std::begin(kOperationNames));
  work.ranks = parse_number<int>(words[1]);
  work.elements = parse_number<std::size_t>(words[2]);
  work.batches = parse_number<int>(words[3]);
  work.per_batch = parse_number<int>(words[4]);
  for (std::size_t begin = 0; begin <= words[5].size();) {
    const std::size_t end = std::min(words[5].find(',', begin), words[5].size());
    work.cpus.push_back(parse_number<int>(std::string_view(words[5]).substr(begin, end - begin)));
    begin = end + 1;
  }
  return work;
}

/// Pins every rank to its own core if there are enough; otherwise all ranks share all cores and the kernel
/// decides. A contender with helper threads passes `own_core` = false, because its threads would compete for
/// one core.
inline void take_place(const Work& work, int rank, bool own_core = true) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const auto k = static_cast<std::size_t>(rank);
  for (std::size_t i = 0; i < work.cpus.size(); ++i)
    if (!own_core || static_cast<std::size_t>(work.ranks) > work.cpus.size() || i == k)
      CPU_SET(static_cast<std::size_t>(work.cpus[i]), &set);
  sched_setaffinity(0, sizeof set, &set);  // a failure makes results noisier, not wrong
}

/// The distances of a step's sources: rank r receives from r + offset and sends to r - offset.
inline std::vector<int> source_offsets(const Work& work, long step) {
  std::vector<int> offsets;
  for (int offset = 1; offset < work.ranks; offset *= 2) offsets.push_back(offset);
  if (work.operation == Operation::one_peer && !offsets.empty())
    offsets = {offsets[static_cast<std::size_t>(step) % offsets.size()]};
  return offsets;
}

inline float start_value(int rank) {
  return static_cast<float>(1 + rank);
}

/// Throws unless `x`, which was start_value(rank) everywhere before the first operation, has the right value
/// now. Sums are then set to zero, because they would overflow.
inline void check_first(const Work& work, int rank, std::vector<float>& x) {
  double expected = start_value(rank);
  if (work.operation == Operation::allreduce) {
    expected = work.ranks * (work.ranks + 1) / 2;
  } else {
    const std::vector<int> offsets = source_offsets(work, 0);
    for (const int offset : offsets) expected += start_value((rank + offset) % work.ranks);
    expected /= static_cast<double>(offsets.size() + 1);
  }
  for (const float value : x)
    if (value < expected - 1e-5 || value > expected + 1e-5)
      throw std::runtime_error("wrong result: " + std::to_string(value) + " instead of " +
                               std::to_string(expected));
  if (work.operation == Operation::allreduce) std::fill(x.begin(), x.end(), 0.0F);
}

/// The seconds of every batch on this rank, after a warm-up. `barrier` lets all ranks start a batch together.
template <typename Barrier, typename Operate>
std::vector<double> time_batches(const Work& work, const Barrier& barrier, const Operate& operate) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUp = 3;  // all memory has been touched by then
  for (int i = 0; i < std::max(kWarmUp, work.per_batch); ++i) operate();
  std::vector<double> seconds;
  for (int batch = 0; batch < work.batches; ++batch) {
    barrier();
    const auto start = Clock::now();
    for (int i = 0; i < work.per_batch; ++i) operate();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

}  // namespace starling::bench
