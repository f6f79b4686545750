#pragma once

#include <CLI/CLI.hpp>

namespace starling::bench {

/// `starling bench gpu`: passes, steps and averages in device memory, each beside its limit.
void add_bench_gpu(CLI::App& bench);

}  // namespace starling::bench
