#include <bit>
#include <gtest/gtest.h>
#include <limits>
#include <type_traits>

#include "twins.h"

namespace starling::kernel::cuda {
namespace {

template <typename T>
void check_reduce() {
  for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max, Reduction::average})
    for (const std::size_t count : {1U, 7U, 1003U, 5003U})
      for (const Layout layout : kLayouts) {
        Twins<T> x(2, count, layout, count);
        on_host().reduce(reduction, x[0].host(), x[1].host());
        on_gpu().reduce(reduction, x[0].device(), x[1].device());
        on_host().reduce(reduction, x[1].host(), x[1].host());
        on_gpu().reduce(reduction, x[1].device(), x[1].device());
        finish();
        ASSERT_TRUE(x.same()) << name(reduction);
      }
}

TEST(CudaMapsTest, ReducesAsTheHost) {
  for (int dtype = 0; dtype <= static_cast<int>(DType::uint8); ++dtype)
    dispatch(static_cast<DType>(dtype), []<typename T>(std::type_identity<T>) { check_reduce<T>(); });
}

template <typename T>
void check_scale_and_divide() {
  for (const std::size_t count : kCounts)
    for (const Layout layout : kLayouts)
      for (const double number : {3.0, -0.1, 0.0, std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN()}) {
        Twins<T> x(2, count, layout, count);
        on_host().scale(x[0].host(), number);
        on_host().divide(x[1].host(), number);
        on_gpu().scale(x[0].device(), number);
        on_gpu().divide(x[1].device(), number);
        finish();
        ASSERT_TRUE(x.same()) << number;
      }
}

TEST(CudaMapsTest, ScalesAndDividesAsTheHost) {
  check_scale_and_divide<float>();
  check_scale_and_divide<double>();
  check_scale_and_divide<Half>();
  check_scale_and_divide<BFloat16>();
}

template <typename T>
void check_clip_and_divide_by() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const std::size_t count : {1U, 7U, 1003U, 5003U})
    for (const Layout layout : kLayouts)
      for (const double number : {4.0, 0.01, 0.0, -1.0, kNan, std::numeric_limits<double>::infinity()}) {
        Twins<T> x(3, count, layout, count);
        Twin<double> there({number}, 0);
        for (const bool device : {false, true}) {
          const Arithmetic& arithmetic = device ? on_gpu() : on_host();
          const auto buffer = [&](std::size_t i) { return device ? x[i].device() : x[i].host(); };
          const Buffer argument = device ? there.device() : there.host();
          if (!(number < 0)) arithmetic.clip(buffer(0), 0.5, argument, 1.5);
          arithmetic.divide_by(buffer(1), buffer(2), argument);
        }
        finish();
        ASSERT_TRUE(x.same()) << number;
      }
}

TEST(CudaMapsTest, ClipsAndDividesByANumberOnTheDevice) {
  check_clip_and_divide_by<float>();
  check_clip_and_divide_by<double>();
  check_clip_and_divide_by<Half>();
  check_clip_and_divide_by<BFloat16>();
}

template <typename T>
void check_gather(Layout layout) {
  // More parts than one launch takes, of lengths around those of a block; every third one is zeros.
  constexpr std::size_t kParts = 70;
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < kParts; ++i) counts.push_back(i < 40 ? i : 8192 / sizeof(T) * (i % 4) + i % 7);
  Twins<T> sources(kParts, 30'000, layout, 1);
  std::size_t end = 5;
  std::vector<GatheredPart> parts[2];
  for (std::size_t i = 0; i < kParts; ++i) {
    for (const bool device : {false, true}) {
      const ConstBuffer from = device ? sources[i].device() : sources[i].host();
      parts[device ? 1 : 0].push_back({i % 3 == 2 ? nullptr : from.address(), end, counts[i]});
    }
    end += counts[i] + i % 2;  // gaps stay as they are
  }
  Twins<T> out(1, end + 3, layout, 2);
  on_host().gather(out[0].host(), parts[0]);
  on_gpu().gather(out[0].device(), parts[1]);
  on_gpu().gather(out[0].device(), {});
  finish();
  ASSERT_TRUE(out.same());
}

TEST(CudaMapsTest, GathersAsTheHost) {
  for (const Layout layout : kLayouts) {
    check_gather<float>(layout);
    check_gather<double>(layout);
    check_gather<Half>(layout);
    check_gather<std::uint8_t>(layout);
  }
}

template <typename From, typename To>
void check_copy() {
  for (const std::size_t count : {1U, 7U, 1003U, 5003U})
    for (const Layout layout : kLayouts) {
      Twins<From> in(1, count, layout, count);
      Twins<To> out(2, count, layout, count);
      on_host().copy(out[1].host(), in[0].host());
      on_gpu().copy(out[1].device(), in[0].device());
      finish();
      ASSERT_TRUE(out.same());
    }
}

TEST(CudaMapsTest, CopiesAndConvertsAsTheHost) {
  check_copy<float, Half>();
  check_copy<Half, float>();
  check_copy<float, BFloat16>();
  check_copy<BFloat16, float>();
  check_copy<float, double>();
  check_copy<double, float>();
  check_copy<std::int16_t, std::int16_t>();
}

// Compares bit for bit, NaNs included.
template <typename Short>
void check_every_bit_pattern() {
  constexpr std::size_t kPatterns = 65536;
  DeviceVector<Short> all(kPatterns);
  for (std::size_t i = 0; i < kPatterns; ++i) all[i] = Short::from_bits(static_cast<std::uint16_t>(i));
  DeviceVector<float> host(kPatterns), device(kPatterns);
  const auto buffer = [](auto& values, MemoryKind memory) {
    using T = std::remove_reference_t<decltype(values[0])>;
    return Buffer(dtype_of<T>, values.data(), values.size(), memory, nullptr);
  };
  on_host().copy(buffer(host, MemoryKind::host), buffer(all, MemoryKind::host));
  on_gpu().copy(buffer(device, MemoryKind::cuda), buffer(all, MemoryKind::cuda));
  finish();
  for (std::size_t i = 0; i < kPatterns; ++i) ASSERT_EQ(bits_of(device[i]), bits_of(host[i])) << i;
  // Converts back, and converts numbers between two numbers of Short, ties among them.
  for (const std::uint32_t step : {0x0U, 0x1U, 0x1000U, 0xFFFU, 0x1001U, 0x8000U, 0x7FFFU, 0x8001U}) {
    DeviceVector<Short> host_back(kPatterns), device_back(kPatterns);
    for (std::size_t i = 0; i < kPatterns; ++i) device[i] = std::bit_cast<float>(bits_of(host[i]) ^ step);
    on_host().copy(buffer(host_back, MemoryKind::host), buffer(device, MemoryKind::host));
    on_gpu().copy(buffer(device_back, MemoryKind::cuda), buffer(device, MemoryKind::cuda));
    finish();
    for (std::size_t i = 0; i < kPatterns; ++i)
      ASSERT_EQ(device_back[i].bits, host_back[i].bits) << std::hex << bits_of(device[i]);
  }
}

TEST(CudaMapsTest, ConvertsEvery16BitPatternAsTheHost) {
  check_every_bit_pattern<Half>();
  check_every_bit_pattern<BFloat16>();
}

template <typename T>
void check_copy_strided() {
  for (const std::size_t count : kCounts)
    for (const Layout layout : kLayouts) {
      Twins<T> x(3, count, layout, count);
      for (const bool device : {false, true}) {
        const Arithmetic& arithmetic = device ? on_gpu() : on_host();
        const auto buffer = [&](std::size_t i) { return device ? x[i].device() : x[i].host(); };
        arithmetic.copy_strided(buffer(1), 1, buffer(0), 2);
        arithmetic.copy_strided(buffer(2), 3, buffer(0).part(0, (count + 2) / 3), 1);
        arithmetic.copy_strided(buffer(2).part(count / 2, count - count / 2), 2, buffer(0).part(0, count / 2),
                                2);
      }
      finish();
      ASSERT_TRUE(x.same()) << count;
    }
}

TEST(CudaMapsTest, CopiesStridesAsTheHost) {
  for (int dtype = 0; dtype <= static_cast<int>(DType::uint8); ++dtype)
    dispatch(static_cast<DType>(dtype), []<typename T>(std::type_identity<T>) { check_copy_strided<T>(); });
}

TEST(CudaMapsTest, SwapsAndZeroes) {
  for (const std::size_t count : kCounts)
    for (const Layout layout : kLayouts) {
      Twins<double> x(3, count, layout, count);
      Twins<std::int8_t> bytes(2, count, layout, count);
      for (const bool device : {false, true}) {
        const Arithmetic& arithmetic = device ? on_gpu() : on_host();
        const auto buffer = [&](auto& twin) { return device ? twin.device() : twin.host(); };
        arithmetic.swap(buffer(x[0]), buffer(x[1]));
        arithmetic.swap(buffer(bytes[0]), buffer(bytes[1]));
        arithmetic.zero(buffer(x[2]));
      }
      finish();
      ASSERT_TRUE(x.same() && bytes.same());
    }
}

}  // namespace
}  // namespace starling::kernel::cuda
