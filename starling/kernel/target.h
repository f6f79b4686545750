#pragma once

#include <string>
#include <vector>

namespace starling::kernel {

/// The instruction sets that the kernels are compiled for, worst first. `baseline` is what the compiler may
/// use everywhere. Results are the same on all of them, so that only tests and benchmarks choose.
enum class Target { baseline, sse4, avx2, avx512 };

/// Those that this processor has, worst first.
std::vector<Target> available_targets();

/// What the kernels use now: the best, unless a test chose another.
Target current_target();

/// Makes all kernels of the process use `target`, which must be available.
void use_target(Target target);

std::string name(Target target);

}  // namespace starling::kernel
