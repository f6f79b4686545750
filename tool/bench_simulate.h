#pragma once

#include <CLI/CLI.hpp>

namespace starling::tool {

void add_bench_simulate(CLI::App& bench);

}  // namespace starling::tool
