#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "starling/base/random.h"
#include "starling/codec/registry.h"

// Helpers shared by the tests of codecs.

namespace starling::codec {

template <typename T>
std::vector<T> normal_numbers(std::size_t count, std::uint64_t seed, double deviation = 1) {
  Random random(seed, 0, 0);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(deviation * random.normal());
  return values;
}

/// A message between guard bytes, which detect writes outside of it.
class Message {
 public:
  explicit Message(std::size_t bytes) : bytes_(bytes), words_(bytes / 8 + 2 * kGuard, kPattern) {}

  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data() + kGuard); }
  Buffer buffer() { return {DType::uint8, data(), bytes_}; }
  std::vector<unsigned char> copy() {
    const auto* from = reinterpret_cast<const unsigned char*>(data());
    return {from, from + bytes_};
  }
  bool guards_stand() const {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (words_[i] != kPattern || words_[words_.size() - 1 - i] != kPattern) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 16;
  static constexpr std::uint64_t kPattern = 0xA5A5A5A5A5A5A5A5U;
  std::size_t bytes_;
  std::vector<std::uint64_t> words_;
};

template <typename T>
ConstBuffer values_in(const std::vector<T>& values) {
  return {dtype_of<T>, values.data(), values.size()};
}
template <typename T>
Buffer values_of(std::vector<T>& values) {
  return {dtype_of<T>, values.data(), values.size()};
}

template <typename T>
Message encoded(const Codec& codec, const std::vector<T>& values, const CodecKey& key = {},
                std::size_t rows = 0) {
  Message message(codec.encoded_bytes(dtype_of<T>, {values.size(), rows}));
  codec.encode(values_in(values), rows, key, message.buffer());
  return message;
}

template <typename T>
std::vector<T> decoded(const Codec& codec, Message& message, std::size_t count, std::size_t rows = 0) {
  std::vector<T> values(count + 2, T(77));
  codec.decode(message.buffer(), rows, values_of(values).part(0, count));
  if (values[count] != T(77) || values[count + 1] != T(77)) throw Error("decode wrote outside");
  values.resize(count);
  return values;
}

/// Encodes the values and decodes the message.
template <typename T>
std::vector<T> passed(const std::string& spec, const std::vector<T>& values, const CodecKey& key = {},
                      std::size_t rows = 0) {
  const CodecPtr codec = make_codec(spec);
  Message message = encoded(*codec, values, key, rows);
  return decoded<T>(*codec, message, values.size(), rows);
}

}  // namespace starling::codec
