#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "starling/base/dtype.h"
#include "starling/base/random.h"
#include "starling/kernel/target.h"

// Helpers shared by the tests of kernels: every instruction set, special numbers, unaligned blocks.

namespace starling::kernel {

/// Runs a test once per instruction set of this processor.
class EveryTarget : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override { use_target(GetParam()); }
  void TearDown() override { use_target(available_targets().back()); }
};

inline std::string target_name(const testing::TestParamInfo<Target>& info) {
  static const char* const kNames[] = {"baseline", "sse4", "avx2", "avx512"};
  return kNames[static_cast<int>(info.param)];
}

#define STARLING_ON_EVERY_TARGET(suite) \
  INSTANTIATE_TEST_SUITE_P(Simd, suite, testing::ValuesIn(available_targets()), target_name)

/// A block that begins `offset` elements after a 64-byte boundary, followed by a guard that must not change.
template <typename T, typename Allocator = std::allocator<unsigned char>>
class Placed {
 public:
  Placed(std::size_t count, std::size_t offset)
      : count_(count), bytes_((count + offset + kGuard) * sizeof(T) + 64, 0xA5) {
    const std::size_t past = reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64;
    begin_ = (64 - past) % 64 + offset * sizeof(T);
  }
  Placed(const std::vector<T>& values, std::size_t offset) : Placed(values.size(), offset) {
    if (count_ > 0) std::memcpy(data(), values.data(), count_ * sizeof(T));
  }
  Placed(Placed&&) = default;

  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }
  std::vector<T> values() { return std::vector<T>(data(), data() + count_); }
  bool guards_stand() const {
    for (std::size_t i = 0; i < begin_; ++i)
      if (bytes_[i] != 0xA5) return false;
    for (std::size_t i = begin_ + count_ * sizeof(T); i < bytes_.size(); ++i)
      if (bytes_[i] != 0xA5) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 32;
  std::size_t count_;
  std::size_t begin_ = 0;
  std::vector<unsigned char, Allocator> bytes_;
};

/// Mostly numbers around one; every eighth has any bit pattern: subnormals, infinities, NaN, both zeros.
template <typename T>
std::vector<T> odd_numbers(std::size_t count, std::uint64_t seed) {
  Random random(seed, 1, 1);
  std::vector<T> values(count);
  for (T& value : values) {
    const std::uint64_t word = random.next();
    if constexpr (is_floating_element<T>) {
      value = static_cast<T>(static_cast<float>(random.uniform() * 4 - 2));
      if (word % 8 == 0) std::memcpy(&value, &word, sizeof(T));
      if (word % 64 == 1) value = static_cast<T>(word % 128 == 1 ? 0.0F : -0.0F);
    } else {
      std::memcpy(&value, &word, sizeof(T));
    }
  }
  return values;
}

/// Numbers between -1 and 1.
template <typename T>
std::vector<T> small_numbers(std::size_t count, std::uint64_t seed) {
  Random random(seed, 3, 7);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random.uniform() * 2 - 1);
  return values;
}

template <typename T>
auto bits_of(T value) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<std::uint64_t>(value);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<std::uint32_t>(value);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<std::uint16_t>(value);
  else
    return std::bit_cast<std::uint8_t>(value);
}

/// Whether both have the same bits, or both are NaN.
template <typename T>
bool same(T left, T right) {
  if constexpr (is_floating_element<T>)
    if (left != left || right != right) return left != left && right != right;
  return bits_of(left) == bits_of(right);
}

template <typename T>
testing::AssertionResult same_blocks(const std::vector<T>& left, const std::vector<T>& right) {
  if (left.size() != right.size()) return testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!same(left[i], right[i]))
      return testing::AssertionFailure()
             << name(dtype_of<T>) << " element " << i << " of " << left.size() << ": 0x" << std::hex
             << +bits_of(left[i]) << " is not 0x" << +bits_of(right[i]);
  return testing::AssertionSuccess();
}

}  // namespace starling::kernel
