#pragma once

#include <span>
#include <vector>

#include "starling/base/buffer.h"
#include "starling/kernel/int8.h"
#include "starling/kernel/int8_runs.h"
#include "starling/kernel/term.h"

// int8 messages of float32 blocks: the grids of all runs, then one byte per element, padded to a multiple of
// 8 bytes. A device's kernels work in its memory; without them, memory of a device is copied to the host.

namespace starling::kernel {

/// The bytes of the grids in the message of a block, after which its codes begin.
inline std::size_t int8_grid_bytes(std::span<const std::size_t> ends) {
  return int8_runs(ends, ends.empty() ? 0 : ends.back()) * sizeof(Int8Grid);
}

/// The bytes of the message of a block.
inline std::size_t int8_message_bytes(std::span<const std::size_t> ends) {
  return int8_grid_bytes(ends) + (ends.empty() ? 0 : (ends.back() + 7) / 8 * 8);
}

/// Writes a part of the block, `in`, to its place in the whole block's message.
void encode_int8(const Int8Part& part, ConstBuffer in, Buffer message);
void decode_int8(const Int8Part& part, ConstBuffer message, Buffer out);
/// For a part of the block: out <- x + the sum of weight * (theirs - own). Without x (empty), only the sum.
void combine_around_int8(const Int8Part& part, Buffer out, ConstBuffer x, ConstBuffer own,
                         std::span<const Term> others);

/// Where the runs of a block lie in its messages, for messages in host memory.
class Int8Runs {
 public:
  explicit Int8Runs(std::span<const std::size_t> ends)
      : codes_(int8_grid_bytes(ends)), count_(ends.empty() ? 0 : ends.back()) {}

  /// Run number `run`, which begins with this element of the block.
  Int8Run read(const void* message, std::size_t run, std::size_t element) const;
  void write(void* message, std::size_t run, std::size_t element, const float* in, std::size_t length) const;

 private:
  std::size_t codes_;  // where they begin
  std::size_t count_;
};

/// Calls body(run, begin, length) for every run of a part of `count` elements; `run` counts from the block's
/// first run, `begin` from the part's first element.
template <typename Body>
void for_int8_runs(const Int8Part& part, std::size_t count, const Body& body) {
  std::size_t run = int8_runs(part.ends, part.begin);
  for_parameters(part.ends, part.begin, part.begin + count, [&](std::size_t begin, std::size_t end) {
    for (; begin < end; begin += kInt8Run) body(run++, begin - part.begin, std::min(kInt8Run, end - begin));
  });
}

}  // namespace starling::kernel
