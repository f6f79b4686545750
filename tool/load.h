#pragma once

#include <CLI/CLI.hpp>

namespace starling::tool {

/// Adds `--load FILE`: a shared library whose topologies, methods, codecs and objectives this command, its
/// workers and its ranks can name.
void add_load_option(CLI::App& command);

}  // namespace starling::tool
