#pragma once

#include "starling/kernel/code_rules.h"
#include "starling/kernel/int8_messages.h"

// The runs of int8 messages in kernels.

namespace starling::kernel::cuda {

/// The runs of several parameters, as a kernel argument.
struct Runs {
  static constexpr int kMost = 96;
  int parameters;
  unsigned first;                // of these runs, among those of the whole block
  unsigned first_of[kMost + 1];  // of each parameter, counted from `first`, and the end
  std::size_t begin[kMost + 1];  // of each parameter, from the part's first element, and the end

  __device__ __forceinline__ unsigned count() const { return first_of[parameters]; }
};

/// Run `index` of these: `count` elements from element `begin` on.
struct Run {
  __device__ __forceinline__ Run(const Runs& runs, unsigned index) : number(runs.first + index) {
    int low = 0, high = runs.parameters;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (runs.first_of[middle] <= index ? low : high) = middle;
    }
    begin = runs.begin[low] + (index - runs.first_of[low]) * kInt8Run;
    const std::size_t end = runs.begin[low + 1];
    count = begin + kInt8Run < end ? kInt8Run : end - begin;
  }

  unsigned number;
  std::size_t begin;
  std::size_t count;
};

/// Where the codes of a part begin in a message; `end` and `padded`, counted from there, are those of the
/// whole block.
struct PartCodes {
  explicit PartCodes(const Int8Part& part)
      : offset(int8_grid_bytes(part.ends) + part.begin),
        end(part.ends.back() - part.begin),
        padded((part.ends.back() + 7) / 8 * 8 - part.begin) {}

  std::size_t offset;
  std::size_t end;
  std::size_t padded;
};

/// Calls body(runs, count) for several parameters of a part at a time.
template <typename Body>
void for_runs(const Int8Part& part, std::size_t count, const Body& body) {
  Runs runs{};
  unsigned number = 0;
  runs.first = static_cast<unsigned>(int8_runs(part.ends, part.begin));
  const auto flush = [&] {
    if (number > 0) body(runs, number);
    runs.first += number;
    runs.parameters = 0;
    number = 0;
  };
  for_parameters(part.ends, part.begin, part.begin + count, [&](std::size_t begin, std::size_t end) {
    if (runs.parameters == Runs::kMost) flush();
    runs.first_of[runs.parameters] = number;
    runs.begin[runs.parameters++] = begin - part.begin;
    number += static_cast<unsigned>((end - begin + kInt8Run - 1) / kInt8Run);
    runs.first_of[runs.parameters] = number;
    runs.begin[runs.parameters] = end - part.begin;
  });
  flush();
}

}  // namespace starling::kernel::cuda
