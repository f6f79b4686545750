#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/base/buffer.h"
#include "starling/kernel/combine.h"

namespace starling::codec {

/// The encoding of float32 blocks in the messages of averages. Without state; thread-safe. `float16` and
/// `bfloat16` convert like the codecs of these names. `int8` differs from the codec `uint8`, which has other
/// chunks and 256 steps, where `int8` has 255 around a middle.
///
/// All arguments of one call are in one kind of memory.
class WireFormat {
 public:
  virtual ~WireFormat() = default;

  /// "float32", "float16", "bfloat16" or "int8".
  std::string name() const { return starling::name(dtype_); }
  /// The type of a message's elements.
  DType dtype() const { return dtype_; }
  /// Whether a message is the unchanged block.
  bool exact() const { return dtype_ == DType::float32; }
  /// Whether messages can be summed element by element: they have one element per element of the block.
  bool summable() const { return dtype_ != DType::int8; }

  /// The number of elements, and of bytes, of the message for a block of `count` elements.
  virtual std::size_t encoded_count(std::size_t count) const = 0;
  std::size_t encoded_bytes(std::size_t count) const { return encoded_count(count) * size_of(dtype_); }

  virtual void encode(ConstBuffer in, Buffer message, Store store = Store::automatic) const = 0;
  virtual void decode(ConstBuffer message, Buffer out, Store store = Store::automatic) const = 0;
  /// out <- x + the sum of weight * (theirs - own), which keeps the flock's mean whatever the rounding: `own`
  /// is the message that this rank sent of x. Without x (empty), only the sum; x and out may be the same.
  virtual void combine_around(Buffer out, ConstBuffer x, ConstBuffer own,
                              std::span<const Term> others) const = 0;

 protected:
  explicit WireFormat(DType dtype) : dtype_(dtype) {}

 private:
  DType dtype_;
};

using WireFormatPtr = std::shared_ptr<const WireFormat>;

/// The canonical spelling: `float32` (also `fp32`), `float16` (`fp16`, `half`), `bfloat16` (`bf16`) or `int8`
/// (`uint8`). Throws InvalidArgument with what is valid.
std::string parse_wire_format(const std::string& text);
/// The other spellings of a canonical name.
std::vector<std::string> wire_format_aliases(const std::string& name);

/// `text` is any spelling that parse_wire_format() accepts. `ends`: where the parameters of a block end, for
/// int8, which scales each parameter separately; a block of another length is one parameter.
WireFormatPtr make_wire_format(const std::string& text, std::vector<std::size_t> ends = {});

}  // namespace starling::codec
