#pragma once

#include <CLI/CLI.hpp>

namespace starling::bench {

void add_bench_simulate(CLI::App& bench);

}  // namespace starling::bench
