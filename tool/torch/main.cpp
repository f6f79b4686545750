#include <csignal>
#include <exception>
#include <iostream>

#include "starling/base/extension.h"
#include "starling/version.h"
#include "tool/torch/command.h"

// The part of the command `starling` that needs libtorch, which takes a while to load.
int main(int argc, char** argv) {
  using namespace starling::tool;
  std::signal(SIGPIPE, SIG_IGN);  // workers may end first
  CLI::App app("Starling: one model, many workers, a few neighbors each.", "starling");
  app.set_version_flag("--version", "starling " STARLING_VERSION);
  app.require_subcommand(1);
  app.formatter(help_formatter());
  remember_command_line(argc, argv);
#ifdef STARLING_BENCHMARKS
  add_torch_bench(app);
#endif
  add_demo(app);
  add_train(app);
  add_sweep(app);
  add_about(app);
  try {
    starling::load_extensions_of_environment();
    app.parse(argc, argv);
    if (exit_status() == 0) flush_output();  // otherwise workers have reported it, or something worse
    return exit_status();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "starling: " << parse_problem(app, error) << "; see --help\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "starling: " << error.what() << '\n';
    return 2;
  }
}
