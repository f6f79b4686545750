#include "starling/codec/wire_format.h"

#include <algorithm>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/kernel/arithmetic.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/int8_messages.h"

namespace starling::codec {
namespace {

struct WireFormatSpelling {
  DType dtype;
  std::vector<std::string> aliases;
};

const std::vector<WireFormatSpelling>& wire_format_spellings() {
  static const std::vector<WireFormatSpelling> spellings = {{DType::float32, {"fp32"}},
                                                            {DType::float16, {"fp16", "half"}},
                                                            {DType::bfloat16, {"bf16"}},
                                                            {DType::int8, {"uint8"}}};
  return spellings;
}

const WireFormatSpelling& find_wire_format(const std::string& text) {
  std::vector<std::string> names, aliases;
  for (const WireFormatSpelling& one : wire_format_spellings()) {
    if (text == name(one.dtype) || std::ranges::count(one.aliases, text) > 0) return one;
    names.push_back(name(one.dtype));
    aliases.insert(aliases.end(), one.aliases.begin(), one.aliases.end());
  }
  throw InvalidArgument(unknown_name("wire format", text, names, aliases));
}

/// Rounds every element to the message's type.
class RoundedFormat final : public WireFormat {
 public:
  explicit RoundedFormat(DType message) : WireFormat(message) {}

  std::size_t encoded_count(std::size_t count) const override { return count; }
  void encode(ConstBuffer in, Buffer message, Store store) const override { round(in, message, store); }
  void decode(ConstBuffer message, Buffer out, Store store) const override { round(message, out, store); }
  void combine_around(Buffer out, ConstBuffer x, ConstBuffer own,
                      std::span<const Term> others) const override {
    arithmetic_in(out.memory).combine_around(dtype(), out, x, {own, 1}, others);
  }

 private:
  static void round(ConstBuffer in, Buffer out, Store store) {
    if (in.on_host() && out.on_host()) return convert(in, out, store);
    arithmetic_in(out.memory).copy(out, in);
  }
};

class Int8Format final : public WireFormat {
 public:
  explicit Int8Format(std::vector<std::size_t> ends) : WireFormat(DType::int8), ends_(std::move(ends)) {}

  std::size_t encoded_count(std::size_t count) const override {
    return kernel::int8_message_bytes(ends_of(count));
  }

  void encode(ConstBuffer in, Buffer message, Store) const override {
    kernel::encode_int8({ends_of(in.count)}, in, message);
  }
  void decode(ConstBuffer message, Buffer out, Store) const override {
    kernel::decode_int8({ends_of(out.count)}, message, out);
  }
  void combine_around(Buffer out, ConstBuffer x, ConstBuffer own,
                      std::span<const Term> others) const override {
    kernel::combine_around_int8({ends_of(out.count)}, out, x, own, others);
  }

 private:
  // Where a block's parameters end.
  std::span<const std::size_t> ends_of(const std::size_t& count) const {
    if (!ends_.empty() && ends_.back() == count) return ends_;
    return {&count, 1};
  }

  std::vector<std::size_t> ends_;
};

}  // namespace

std::string parse_wire_format(const std::string& text) {
  return name(find_wire_format(text).dtype);
}

std::vector<std::string> wire_format_aliases(const std::string& name) {
  return find_wire_format(name).aliases;
}

WireFormatPtr make_wire_format(const std::string& text, std::vector<std::size_t> ends) {
  const DType dtype = find_wire_format(text).dtype;
  if (dtype == DType::int8) return std::make_shared<Int8Format>(std::move(ends));
  return std::make_shared<RoundedFormat>(dtype);
}

}  // namespace starling::codec
