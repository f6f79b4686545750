#include <dlfcn.h>
#include <iostream>
#include <torch/version.h>

#include "starling/base/json.h"
#include "starling/train/model/model.h"
#include "tool/torch/command.h"

namespace starling::tool {
namespace {

// The processor whose kernels OpenBLAS has chosen; "" if torch uses another BLAS.
std::string blas_core() {
  const auto name = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return name == nullptr ? "" : name();
}

}  // namespace

void add_about(CLI::App& app) {
  app.add_subcommand("about", "what `starling info` wants to know of this program")->group("")->callback([] {
    JsonWriter json(std::cout);
    json.begin_object()
        .member("torch", TORCH_VERSION)
        .member("blas_core", blas_core())
        .key("models")
        .begin_array();
    for (const ModelFamily& family : model_families()) json.value(family.name);
    json.end_array().end_object();
    std::cout << '\n';
  });
}

}  // namespace starling::tool
