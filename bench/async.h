#pragma once

#include <CLI/CLI.hpp>

namespace starling::bench {

/// `starling bench async`: how much one slow rank slows the others.
void add_bench_async(CLI::App& bench);

}  // namespace starling::bench
