#include "starling/kernel/target.h"

#include <algorithm>
#include <atomic>

#include "starling/base/error.h"

namespace starling::kernel {

namespace {

// Checks for every feature that Highway's code for the target may use, also beyond the target's name.
bool has(Target target) {
#if defined(__x86_64__)
  switch (target) {
    case Target::baseline:
      return true;
    case Target::sse4:
      return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
             __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
             __builtin_cpu_supports("aes");
    case Target::avx2:
      return has(Target::sse4) && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
             __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Target::avx512:
      return has(Target::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  }
  return false;
#else
  return target == Target::baseline;
#endif
}

std::atomic<Target>& chosen() {
  static std::atomic<Target> target{available_targets().back()};
  return target;
}

}  // namespace

std::vector<Target> available_targets() {
  std::vector<Target> found;
  for (const Target target : {Target::baseline, Target::sse4, Target::avx2, Target::avx512})
    if (has(target)) found.push_back(target);
  return found;
}

Target current_target() {
  return chosen().load(std::memory_order_relaxed);
}

void use_target(Target target) {
  if (!has(target)) throw InvalidArgument("this processor has no " + name(target));
  chosen().store(target, std::memory_order_relaxed);
}

std::string name(Target target) {
  switch (target) {
    case Target::baseline:
      return "baseline";
    case Target::sse4:
      return "SSE4";
    case Target::avx2:
      return "AVX2";
    case Target::avx512:
      return "AVX-512";
  }
  return "target " + std::to_string(static_cast<int>(target));
}

}  // namespace starling::kernel
