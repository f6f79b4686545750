#include <exception>
#include <iostream>

#include "starling/base/error.h"
#include "starling/version.h"
#include "tool/command.h"

int main(int argc, char** argv) {
  using namespace starling::tool;
  CLI::App app("Starling: one model, many workers, a few neighbours each.", "starling");
  app.set_version_flag("--version", "starling " STARLING_VERSION);
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  remember_command_line(argc, argv);
  add_topo(app);
  add_compare(app);
  add_simulate(app);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) std::cout << app.help();
    std::cout.flush();
    if (!std::cout) throw starling::Error("cannot write to standard output");
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    std::cerr << "starling: " << error.what() << "; see --help\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "starling: " << error.what() << '\n';
    return 2;
  }
}
