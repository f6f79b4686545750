#include <fmt/format.h>

#include "starling/codec/family/list.h"
#include "starling/codec/sparse.h"
#include "starling/kernel/select.h"

namespace starling::codec::family {
namespace {

/// Sends the k largest |x| of a parameter; ties go to the lower index. The message holds k ascending indices,
/// then k values.
class TopK : public HostCodec {
 public:
  explicit TopK(double fraction) : fraction_(fraction) {}

  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    is_wide(dtype);
    if (shape.count > kMostElements)
      throw InvalidArgument(
          fmt::format("top-k: indices have 32 bits, {} elements are too many", shape.count));
    return kept(fraction_, shape.count) * (sizeof(std::uint32_t) + sizeof(float));
  }

 private:
  std::optional<DeviceCode> device_code(std::size_t count) const override {
    return DeviceCode{.kind = DeviceCode::Kind::top_k, .kept = kept(fraction_, count)};
  }

  void host_encode(ConstBuffer in, std::size_t, const CodecKey&,
                   std::span<std::byte> message) const override {
    std::vector<float> scratch;
    const float* values = as_floats(in, scratch);
    const std::size_t k = message.size() / 8;
    auto* indices = reinterpret_cast<std::uint32_t*>(message.data());
    take_largest(values, in.count, cut_of_largest(values, in.count, k), indices,
                 reinterpret_cast<float*>(indices + k));
  }

  void host_decode(std::span<const std::byte> message, std::size_t, Buffer out) const override {
    const Entries entries(message, out.count);
    scatter(entries.values, entries.k, out, entries);
  }

  void host_decode_add(std::span<const std::byte> message, std::size_t, double weight,
                       Buffer out) const override {
    const Entries entries(message, out.count);
    scatter_add(entries.values, entries.k, weight, out, entries);
  }

  static constexpr std::size_t kMostElements = 0xFFFFFFFF;

  struct Entries {
    Entries(std::span<const std::byte> message, std::size_t of)
        : k(message.size() / 8),
          count(of),
          indices(reinterpret_cast<const std::uint32_t*>(message.data())),
          values(reinterpret_cast<const float*>(indices + k)) {}

    std::size_t operator()(std::size_t j) const {
      if (indices[j] >= count)
        throw InvalidArgument(fmt::format("top-k: the message names element {} of {}", indices[j], count));
      return indices[j];
    }

    std::size_t k;
    std::size_t count;
    const std::uint32_t* indices;
    const float* values;
  };

  double fraction_;
};

}  // namespace

CodecFamily top_k() {
  return {"top-k",
          "the largest |x| of each parameter, with their indices; needs error feedback",
          {fraction_parameter()},
          [](const Parameters& given) { return std::make_shared<TopK>(fraction_of(given)); }};
}

}  // namespace starling::codec::family
