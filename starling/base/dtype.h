#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "starling/base/error.h"

namespace starling {

/// The element types of messages. The values are part of the message header: append, never reorder.
enum class DType : std::uint8_t { float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8 };

namespace detail {

// Rounds to nearest even. Values that are too large become infinite; a NaN stays a (quiet) NaN, as with F16C.
constexpr std::uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U)
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x1FFU));
  if (magnitude >= 0x47800000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // from 65536 on
  if (magnitude <
      0x38800000U) {  // below 2^-14: adding 0.5 leaves multiples of 2^-24, rounded, in the last bits
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3F000000U));
  }
  // Moves the exponent's bias from 127 to 15; a carry out of the fraction is the rounding to the next power.
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

constexpr float half_value(std::uint16_t bits) {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000U) << 16;
  const std::uint32_t shifted = (std::uint32_t{bits} & 0x7FFFU) << 13;
  if (shifted > 0x0F800000U) return std::bit_cast<float>(sign | 0x7FC00000U | (shifted & 0x007FFFFFU));
  if (shifted == 0x0F800000U) return std::bit_cast<float>(sign | 0x7F800000U);
  if (shifted >= 0x00800000U) return std::bit_cast<float>(sign | (shifted + 0x38000000U));
  // Zero or subnormal: 2^-14 + fraction is exact, and so is taking 2^-14 away again.
  const float value = std::bit_cast<float>(shifted + 0x38800000U) - std::bit_cast<float>(0x38800000U);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

constexpr std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float bfloat16_value(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

}  // namespace detail

/// IEEE 754 binary16, for storage: 5 bits of exponent, 11 of precision, up to 65504.
struct Half {
  std::uint16_t bits;

  Half() = default;
  constexpr explicit Half(float value) : bits(detail::half_bits(value)) {}
  static constexpr Half from_bits(std::uint16_t bits) { return std::bit_cast<Half>(bits); }
  constexpr operator float() const { return detail::half_value(bits); }  // NOLINT: nothing is lost
};

/// The upper half of a float32, for storage: its range, 8 bits of precision.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(detail::bfloat16_bits(value)) {}
  static constexpr BFloat16 from_bits(std::uint16_t bits) { return std::bit_cast<BFloat16>(bits); }
  constexpr operator float() const { return detail::bfloat16_value(bits); }  // NOLINT: nothing is lost
};

static_assert(sizeof(Half) == 2 && std::is_trivial_v<Half> && std::is_standard_layout_v<Half>);
static_assert(sizeof(BFloat16) == 2 && std::is_trivial_v<BFloat16> && std::is_standard_layout_v<BFloat16>);

namespace detail {

// long and long long are different types of one size; both are int64 where they have 64 bits.
template <typename T>
constexpr int dtype_index() {
  if constexpr (std::is_same_v<T, double>)
    return 0;
  else if constexpr (std::is_same_v<T, float>)
    return 1;
  else if constexpr (std::is_same_v<T, Half>)
    return 2;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return 3;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return 8;
  else if constexpr (!std::is_integral_v<T> || !std::is_signed_v<T> || std::is_same_v<T, char> ||
                     std::is_same_v<T, wchar_t>)
    return -1;
  else
    return sizeof(T) == 8 ? 4 : sizeof(T) == 4 ? 5 : sizeof(T) == 2 ? 6 : 7;
}

}  // namespace detail

/// Whether T is the type of some DType's elements.
template <typename T>
inline constexpr bool is_element = detail::dtype_index<std::remove_cv_t<T>>() >= 0;

/// The DType of a C++ type: dtype_of<float> is DType::float32.
template <typename T>
inline constexpr DType dtype_of = [] {
  static_assert(is_element<T>,
                "elements are double, float, Half, BFloat16, std::int64_t, "
                "int32_t, int16_t, int8_t or uint8_t");
  return static_cast<DType>(detail::dtype_index<std::remove_cv_t<T>>());
}();

template <typename T>
inline constexpr bool is_floating_element =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

[[noreturn]] void throw_unknown_dtype(DType dtype);

/// Calls f(std::type_identity<T>{}) with the C++ type of `dtype`. Throws InvalidArgument if `dtype` is not
/// valid.
template <typename F>
constexpr decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64:
      return f(std::type_identity<double>{});
    case DType::float32:
      return f(std::type_identity<float>{});
    case DType::float16:
      return f(std::type_identity<Half>{});
    case DType::bfloat16:
      return f(std::type_identity<BFloat16>{});
    case DType::int64:
      return f(std::type_identity<std::int64_t>{});
    case DType::int32:
      return f(std::type_identity<std::int32_t>{});
    case DType::int16:
      return f(std::type_identity<std::int16_t>{});
    case DType::int8:
      return f(std::type_identity<std::int8_t>{});
    case DType::uint8:
      return f(std::type_identity<std::uint8_t>{});
  }
  throw_unknown_dtype(dtype);
}

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  return dispatch(dtype, []<typename T>(std::type_identity<T>) { return sizeof(T); });
}

constexpr bool is_floating(DType dtype) {
  return dispatch(dtype, []<typename T>(std::type_identity<T>) { return is_floating_element<T>; });
}

/// "float32" and so on; "dtype 77" for an invalid value, so that error messages can always name it.
std::string name(DType dtype);

/// The DType of a name. Throws InvalidArgument, which lists the valid names, if it is unknown.
DType parse_dtype(std::string_view text);

}  // namespace starling
