#pragma once

#include <CLI/CLI.hpp>

// The subcommands of `starling simulate`, one per file.

namespace starling::tool {

void add_simulate_consensus(CLI::App& simulate);
void add_simulate_train(CLI::App& simulate);

}  // namespace starling::tool
