#include <iostream>
#include <torch/version.h>

#include "starling/report/json.h"
#include "starling/train/model/model.h"
#include "tool/torch/command.h"

namespace starling::tool {

void add_about(CLI::App& app) {
  app.add_subcommand("about", "what `starling info` wants to know of this program")->group("")->callback([] {
    JsonWriter json(std::cout);
    json.begin_object().member("torch", TORCH_VERSION).key("models").begin_array();
    for (const ModelFamily& family : model_families()) json.value(family.name);
    json.end_array().end_object();
    std::cout << '\n';
  });
}

}  // namespace starling::tool
