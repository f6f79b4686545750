#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/base/dtype.h"
#include "starling/kernel/combine.h"

namespace starling::method {

/// How blocks of float32 travel in fewer bits.
class ShortForm {
 public:
  virtual ~ShortForm() = default;

  /// What a block of so many elements is on its way: its type, and how many elements of that.
  struct Travelling {
    DType dtype;
    std::size_t count;
  };
  virtual Travelling travelling(std::size_t count) const = 0;
  virtual void encode(const float* in, std::size_t count, std::byte* out) const = 0;
  /// out <- x + the sum of weight * (theirs - own), which keeps the flock's mean whatever the rounding: own
  /// is what this rank has told of x. Without x (null) the differences alone; x and out may be the same.
  virtual void around(float* out, const float* x, const void* own, std::span<const Term> others,
                      std::size_t count) const = 0;
};

/// Elements that int8 messages scale together, at most.
inline constexpr std::size_t kInt8Run = 512;

/// `float32`, `float16`, `bfloat16` or `int8`, as options name the type of messages; also `fp16`, `bf16` and
/// `uint8`. Throws InvalidArgument listing what is valid.
DType parse_message_type(const std::string& text);

/// `message` is float16, bfloat16 or int8. `ends`: where the parameters of a block end, for int8, which does
/// not scale two of them together; a block of another length is one.
std::unique_ptr<ShortForm> make_short_form(DType message, std::vector<std::size_t> ends);

}  // namespace starling::method
