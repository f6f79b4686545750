#include "tool/simulate.h"

#include "tool/command.h"

namespace starling::tool {

void add_simulate(CLI::App& app) {
  CLI::App* simulate = app.add_subcommand("simulate", "Run many ranks in one process");
  simulate->require_subcommand(1);
  add_simulate_consensus(*simulate);
  add_simulate_train(*simulate);
}

}  // namespace starling::tool
