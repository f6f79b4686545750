#pragma once

#include "tool/command.h"

namespace starling::tool {

/// Adds a command that is part of starling-torch, so that the other commands need not load libtorch. It
/// executes that program with the same command line.
void add_torch_command(CLI::App& parent, const std::string& name, const std::string& help);
void remember_arguments(char** argv);

}  // namespace starling::tool
