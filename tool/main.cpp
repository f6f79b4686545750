#include <exception>
#include <iostream>
#include <new>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/extension.h"
#include "starling/base/misspelt_variables.h"
#include "starling/version.h"
#include "tool/command.h"
#include "tool/exec_torch_tool.h"

// NOLINTNEXTLINE(bugprone-exception-escape): declaring the commands fails in a wrong program only
int main(int argc, char** argv) {
  using namespace starling::tool;
  CLI::App app("Starling: one model, many workers, a few neighbors each.", "starling");
  app.set_version_flag("--version", "starling " STARLING_VERSION);
  app.require_subcommand(0, 1);
  app.formatter(help_formatter());
  remember_command_line(argc, argv);
  remember_arguments(argv);
  add_topo(app);
  add_compare(app);
  add_methods(app);
  add_topologies(app);
  add_codecs(app);
  add_simulate(app);
  add_run(app);
#ifdef STARLING_BENCHMARKS
  add_bench(app);
#endif
  add_timeline(app);
  add_torch_command(app, "demo",
                    "Train LeNet on MNIST: against all-reduce, with a killed and with a slow worker");
  add_torch_command(app, "train", "Train a model on many workers, with checkpoints and reports");
  add_torch_command(app, "sweep", "Train with every combination of settings, and compare them");
  add_data(app);
  add_report(app);
  add_info(app);
  add_host_store(app);
  add_run_part(app);
  try {
    if (!starling::environment::kRank.is_set())  // ranks warn when they join
      for (const std::string& line : starling::misspelt_variables())
        std::cerr << "starling: " << line << '\n';
    starling::load_extensions_of_environment();
    app.parse(keep_program(app, argc, argv), argv);
    if (app.get_subcommands().empty()) std::cout << app.help();
    flush_output();
    return exit_status();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    std::cerr << "starling: " << parse_problem(app, error) << "; see --help\n";
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "starling: out of memory\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "starling: " << error.what() << '\n';
    return 2;
  }
}
