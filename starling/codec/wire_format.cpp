#include "starling/codec/wire_format.h"

#include <algorithm>
#include <cstring>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/kernel/await_terms.h"
#include "starling/kernel/codec_kernels.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/int8.h"
#include "starling/kernel/staged.h"

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

/// The grids of all runs, then one byte per element, padded to a multiple of 8 bytes.
class Int8Format final : public WireFormat {
 public:
  explicit Int8Format(std::vector<std::size_t> ends) : WireFormat(DType::int8), ends_(std::move(ends)) {}

  std::size_t encoded_count(std::size_t count) const override {
    return grid_bytes(count) + (count + 7) / 8 * 8;
  }

  void encode(ConstBuffer in, Buffer message, Store) const override {
    if (const auto* kernels = codec_kernels_in(in.memory))
      return kernels->encode_int8(ends_of(in.count), in, message);
    const kernel::Staged values(in);
    const kernel::Staged bytes(message, MemoryKind::host, false);
    host_encode(values.buffer(), bytes.buffer());
    bytes.write_back();
  }
  void decode(ConstBuffer message, Buffer out, Store) const override {
    if (const auto* kernels = codec_kernels_in(out.memory))
      return kernels->decode_int8(ends_of(out.count), message, out);
    const kernel::Staged values(out, MemoryKind::host, false);
    host_decode(kernel::Staged(message).buffer(), values.buffer());
    values.write_back();
  }
  void combine_around(Buffer out, ConstBuffer x, ConstBuffer own,
                      std::span<const Term> others) const override {
    if (const auto* kernels = codec_kernels_in(out.memory))
      return kernels->combine_around_int8(ends_of(out.count), out, x, {own, 1}, others);
    if (out.on_host()) return host_combine_around(out, x, own, others);
    std::vector<kernel::Staged<const void>> copies;
    std::vector<Term> terms = kernel::await_terms(others);
    for (Term& term : terms)
      term = {copies.emplace_back(ConstBuffer(own.at(term.data))).buffer(), term.weight};
    const kernel::Staged sum(out, MemoryKind::host, false);
    const kernel::Staged values(x);
    host_combine_around(sum.buffer(), values.buffer(), kernel::Staged(own).buffer(), terms);
    sum.write_back();
  }

 private:
  void host_encode(ConstBuffer in, Buffer message) const {
    std::byte* out = message.host_bytes();
    auto* codes = reinterpret_cast<std::int8_t*>(out + grid_bytes(in.count));
    std::fill(codes + in.count, codes + (in.count + 7) / 8 * 8, std::int8_t{0});
    for_runs(in.count, [&](std::size_t run, std::size_t begin, std::size_t length) {
      const Int8Grid grid = quantize_int8(in.host<float>() + begin, length, codes + begin);
      std::memcpy(out + run * sizeof(grid), &grid, sizeof(grid));
    });
  }

  void host_decode(ConstBuffer message, Buffer out) const {
    const RunsOf runs{message.host_bytes(), grid_bytes(out.count)};
    auto* values = out.host<float>();
    for_runs(out.count, [&](std::size_t run, std::size_t begin, std::size_t length) {
      const Int8Run one = runs.at(run, begin);
      for (std::size_t i = 0; i < length; ++i)
        values[begin + i] = static_cast<float>(one.codes[i]) * one.grid.step + one.grid.middle;
    });
  }

  void host_combine_around(Buffer out, ConstBuffer x, ConstBuffer own, std::span<const Term> others) const {
    kernel::check_on_host(others);
    const std::size_t codes = grid_bytes(out.count);
    const RunsOf own_runs{own.host_bytes(), codes};
    const auto* from = static_cast<const float*>(x.host_data());
    std::vector<Int8Term> terms(others.size());
    for_runs(out.count, [&](std::size_t run, std::size_t begin, std::size_t length) {
      for (std::size_t t = 0; t < terms.size(); ++t) {
        const RunsOf theirs{static_cast<const std::byte*>(others[t].data), codes};
        terms[t] = {theirs.at(run, begin), others[t].weight};
      }
      combine_around_int8(out.host<float>() + begin, from == nullptr ? from : from + begin,
                          own_runs.at(run, begin), terms, length);
    });
  }

  /// The runs of a message; `codes` is the offset of its codes.
  struct RunsOf {
    const std::byte* message;
    std::size_t codes;

    Int8Run at(std::size_t run, std::size_t begin) const {
      Int8Run result{reinterpret_cast<const std::int8_t*>(message + codes + begin), {}};
      std::memcpy(&result.grid, message + run * sizeof(Int8Grid), sizeof(Int8Grid));
      return result;
    }
  };

  /// Calls body(number, begin, length) for every run of a block.
  template <typename Body>
  void for_runs(std::size_t count, const Body& body) const {
    std::size_t run = 0, begin = 0;
    const auto cut = [&](std::size_t end) {
      for (std::size_t length = 0; begin < end; begin += length) {
        length = std::min(kInt8Run, end - begin);
        body(run++, begin, length);
      }
    };
    for (const std::size_t end : ends_of(count)) cut(end);
  }

  // The ends of a block's parameters.
  std::vector<std::size_t> ends_of(std::size_t count) const {
    if (!ends_.empty() && ends_.back() == count) return ends_;
    return {count};
  }

  std::size_t grid_bytes(std::size_t count) const {
    std::size_t runs = 0;
    for_runs(count, [&](std::size_t, std::size_t, std::size_t) { ++runs; });
    return runs * sizeof(Int8Grid);
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
