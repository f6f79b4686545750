#pragma once

#include <CLI/CLI.hpp>

namespace starling::bench {

/// `starling bench async`: what one slow rank costs the others.
void add_bench_async(CLI::App& bench);

}  // namespace starling::bench
