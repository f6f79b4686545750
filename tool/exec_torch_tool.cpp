#include "tool/exec_torch_tool.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "tool/program.h"

namespace starling::tool {
namespace {

char** all_arguments = nullptr;

}  // namespace

void remember_arguments(char** argv) {
  all_arguments = argv;
}

void add_torch_command(CLI::App& parent, const std::string& name, const std::string& help) {
  CLI::App* command = parent.add_subcommand(name, help);
  command->set_help_flag();  // the other program has one
  command->prefix_command();
  command->callback([name] {
    const auto program = beside_us("starling-torch");
    if (!program)
      throw Error(
          fmt::format("starling was built without libtorch, which {} needs (Debian: libtorch-dev)", name));
    execv(program->c_str(), all_arguments);
    throw Error(fmt::format("cannot start {}: {}", *program, std::strerror(errno)));
  });
}

}  // namespace starling::tool
