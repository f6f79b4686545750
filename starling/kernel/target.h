#pragma once

#include <string>
#include <vector>

namespace starling::kernel {

/// The instruction sets that the kernels are compiled for, slowest first. `baseline` is what the compiler may
/// always use. Results are the same on all, so only tests and benchmarks choose.
enum class Target { baseline, sse4, avx2, avx512 };

/// The targets that this processor supports, slowest first.
std::vector<Target> available_targets();

/// The target in use: the best available, unless a test chose another.
Target current_target();

/// Makes all kernels of the process use `target`, which must be available.
void use_target(Target target);

std::string name(Target target);

}  // namespace starling::kernel
