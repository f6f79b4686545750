#pragma once

#include <bit>
#include <cuda_runtime_api.h>

// A stand-in for CUDA's header. The compiler does the conversions, but, as on a GPU, all NaNs become the
// same.

struct __half {
  _Float16 value;
};

inline __half __ushort_as_half(unsigned short bits) {
  return std::bit_cast<__half>(bits);
}
inline unsigned short __half_as_ushort(__half half) {
  return std::bit_cast<unsigned short>(half);
}
inline float __half2float(__half half) {
  return half.value != half.value ? std::bit_cast<float>(0x7FFFFFFFU) : static_cast<float>(half.value);
}
inline __half __float2half_rn(float value) {
  return value != value ? __ushort_as_half(0x7FFF) : __half{static_cast<_Float16>(value)};
}
