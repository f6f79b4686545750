#pragma once

#include "tool/command.h"

// The commands that need libtorch; `starling` hands over to this program, starling-torch, for them.

namespace starling::tool {

void add_bench_training(CLI::App& bench);
void add_bench_scaling(CLI::App& bench);
void add_about(CLI::App& app);
void add_demo(CLI::App& app);
void add_train(CLI::App& app);
void add_sweep(CLI::App& app);

}  // namespace starling::tool
