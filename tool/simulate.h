#pragma once

#include <CLI/CLI.hpp>

// What `starling simulate` can do; one file each.

namespace starling::tool {

void add_simulate_consensus(CLI::App& simulate);
void add_simulate_train(CLI::App& simulate);

}  // namespace starling::tool
