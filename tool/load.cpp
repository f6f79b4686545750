#include "tool/load.h"

#include "starling/base/extension.h"

namespace starling::tool {

void add_load_option(CLI::App& command) {
  command
      .add_option_function<std::vector<std::string>>(
          "--load", [](const std::vector<std::string>& files) { load_extensions(files); },
          "shared library with topologies, methods, codecs or objectives of your own; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->trigger_on_parse();
}

}  // namespace starling::tool
