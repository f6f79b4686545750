#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

// How int8 messages cut a block: parameters into runs of kInt8Run values that share a scale.

namespace starling::kernel {

/// The largest number of elements that int8 messages scale together.
inline constexpr std::size_t kInt8Run = 512;

/// A part of a block in int8 messages: it begins at element `begin`, at the start of a run. `ends`: where the
/// parameters of the whole block end; the last one ends with the block.
struct Int8Part {
  std::span<const std::size_t> ends;
  std::size_t begin = 0;
};

/// Calls body(begin, end) for each parameter, or part of one, between the elements `begin` and `end`.
template <typename Body>
void for_parameters(std::span<const std::size_t> ends, std::size_t begin, std::size_t end, const Body& body) {
  for (const std::size_t one : ends) {
    const std::size_t until = std::min(one, end);
    if (begin >= until) continue;
    body(begin, until);
    begin = until;
  }
}

/// The number of runs in the block before element `end`, with which a run begins or the block ends.
inline std::size_t int8_runs(std::span<const std::size_t> ends, std::size_t end) {
  std::size_t runs = 0;
  for_parameters(ends, 0, end,
                 [&](std::size_t from, std::size_t to) { runs += (to - from + kInt8Run - 1) / kInt8Run; });
  return runs;
}

/// Whether a run begins with this element, or the block ends before it.
inline bool begins_int8_run(std::span<const std::size_t> ends, std::size_t element) {
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    if (element < end) return (element - begin) % kInt8Run == 0;
    begin = end;
  }
  return element == begin;
}

}  // namespace starling::kernel
