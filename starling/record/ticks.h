#pragma once

#include <cstdint>
#include <ctime>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace starling::record {

inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// The clock that all processes of a host share.
inline std::uint64_t steady_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

/// The same with a resolution of milliseconds, but at a cost of a few nanoseconds.
inline std::uint64_t coarse_ns() {
  return clock_ns(CLOCK_MONOTONIC_COARSE);
}

#if defined(__x86_64__)
/// Whether the processor's counter has a constant frequency.
inline const bool kCounterIsSteady = [] {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d >> 8 & 1u) != 0;
}();
#endif

/// The cheapest clock of the machine, in its own unit; a Timeline records how to convert it into nanoseconds.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  if (kCounterIsSteady) return __rdtsc();
#endif
  return steady_ns();
}

}  // namespace starling::record
