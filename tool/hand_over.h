#pragma once

#include "tool/command.h"

namespace starling::tool {

/// A command that lives in starling-torch: libtorch takes a moment to load, which the others need not wait
/// for. It becomes that program, with the command line as it was.
void add_torch_command(CLI::App& parent, const std::string& name, const std::string& help);
void remember_arguments(char** argv);

}  // namespace starling::tool
