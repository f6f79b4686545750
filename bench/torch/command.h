#pragma once

#include <CLI/CLI.hpp>

namespace starling::bench {

void add_bench_training(CLI::App& bench);
void add_bench_scaling(CLI::App& bench);

}  // namespace starling::bench
