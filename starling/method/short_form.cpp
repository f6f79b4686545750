#include "starling/method/short_form.h"

#include <algorithm>
#include <cstring>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/int8.h"

namespace starling::method {
namespace {

/// Every element on its own, rounded to 16 bits.
class Rounded final : public ShortForm {
 public:
  explicit Rounded(DType message) : message_(message) {}

  Travelling travelling(std::size_t count) const override { return {message_, count}; }
  void encode(const float* in, std::size_t count, std::byte* out) const override {
    convert(DType::float32, in, message_, out, count);
  }
  void around(float* out, const float* x, const void* own, std::span<const Term> others,
              std::size_t count) const override {
    combine_around(message_, out, x, own, others, count);
  }

 private:
  DType message_;
};

/// The grids of all runs, then a byte for every element, filled up to a multiple of 8 bytes.
class Scaled final : public ShortForm {
 public:
  explicit Scaled(std::vector<std::size_t> ends) : ends_(std::move(ends)) {}

  Travelling travelling(std::size_t count) const override {
    return {DType::int8, grid_bytes(count) + (count + 7) / 8 * 8};
  }

  void encode(const float* in, std::size_t count, std::byte* out) const override {
    auto* codes = reinterpret_cast<std::int8_t*>(out + grid_bytes(count));
    std::fill(codes + count, codes + (count + 7) / 8 * 8, std::int8_t{0});
    for_runs(count, [&](std::size_t run, std::size_t begin, std::size_t length) {
      const Int8Grid grid = quantize_int8(in + begin, length, codes + begin);
      std::memcpy(out + run * sizeof(grid), &grid, sizeof(grid));
    });
  }

  void around(float* out, const float* x, const void* own, std::span<const Term> others,
              std::size_t count) const override {
    const std::size_t codes = grid_bytes(count);
    const auto run_of = [&](const void* message, std::size_t run, std::size_t begin) {
      const auto* bytes = static_cast<const std::byte*>(message);
      Int8Run result{reinterpret_cast<const std::int8_t*>(bytes + codes + begin), {}};
      std::memcpy(&result.grid, bytes + run * sizeof(Int8Grid), sizeof(Int8Grid));
      return result;
    };
    std::vector<Int8Term> terms(others.size());
    for_runs(count, [&](std::size_t run, std::size_t begin, std::size_t length) {
      for (std::size_t t = 0; t < terms.size(); ++t)
        terms[t] = {run_of(others[t].data, run, begin), others[t].weight};
      combine_around_int8(out + begin, x == nullptr ? x : x + begin, run_of(own, run, begin), terms, length);
    });
  }

 private:
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
    if (!ends_.empty() && ends_.back() == count)
      for (const std::size_t end : ends_) cut(end);
    cut(count);
  }

  std::size_t grid_bytes(std::size_t count) const {
    std::size_t runs = 0;
    for_runs(count, [&](std::size_t, std::size_t, std::size_t) { ++runs; });
    return runs * sizeof(Int8Grid);
  }

  std::vector<std::size_t> ends_;
};

}  // namespace

DType parse_message_type(const std::string& text) {
  struct Word {
    std::string name;
    std::string also;
    DType dtype;
  };
  static const Word kWords[] = {{"float32", "fp32", DType::float32},
                                {"float16", "fp16", DType::float16},
                                {"bfloat16", "bf16", DType::bfloat16},
                                {"int8", "uint8", DType::int8}};
  std::vector<std::string> names;
  for (const Word& word : kWords) {
    if (text == word.name || text == word.also) return word.dtype;
    names.push_back(word.name);
  }
  throw InvalidArgument(unknown_name("message type", text, names));
}

std::unique_ptr<ShortForm> make_short_form(DType message, std::vector<std::size_t> ends) {
  if (message == DType::int8) return std::make_unique<Scaled>(std::move(ends));
  if (message == DType::float16 || message == DType::bfloat16) return std::make_unique<Rounded>(message);
  throw InvalidArgument("messages travel as float32, float16, bfloat16 or int8, not " + name(message));
}

}  // namespace starling::method
