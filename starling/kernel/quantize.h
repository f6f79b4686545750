#pragma once

#include <cstddef>
#include <cstdint>

#include "starling/kernel/store.h"

// What codecs do with every element. The bits are the same on every instruction set and for every alignment.

namespace starling {

struct ValueRange {
  float least;
  float greatest;
};

/// Of at least one value. Both are NaN where a value is; zeros count as +0.
ValueRange value_range(const float* in, std::size_t count);

/// Bagua's min-max code, every operation in float32: scale = 255 / (greatest - least + 1e-7), upper =
/// rint(greatest scale), lower = upper - 255.
struct Uint8Steps {
  explicit Uint8Steps(ValueRange range);

  float scale;
  float upper;
  float lower;
};

/// min(rint(x scale), upper) - lower, held to 0 .. 255. Where the range or `upper` is not finite (which a
/// nearly constant run beyond 1e29 makes it), the codes are 255.
void quantize_uint8(const float* in, std::size_t count, ValueRange range, std::uint8_t* out);

/// (q + lower) / scale. NaN where greatest - least is not finite, infinite where only `upper` is not.
void dequantize_uint8(const std::uint8_t* in, std::size_t count, ValueRange range, float* out,
                      Store store = Store::cached);

}  // namespace starling
