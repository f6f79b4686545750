#pragma once

#include "tool/command.h"

// The commands that need libtorch; `starling` executes this program, starling-torch, for them.

namespace starling::tool {

/// `starling bench training` and `scaling`, and their workers (bench/torch/).
void add_torch_bench(CLI::App& app);
void add_about(CLI::App& app);
void add_demo(CLI::App& app);
void add_train(CLI::App& app);
void add_sweep(CLI::App& app);

}  // namespace starling::tool
