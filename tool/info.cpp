#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <optional>
#include <sys/statvfs.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/json.h"
#include "starling/base/os/program.h"
#include "starling/data/registry.h"
#include "starling/fabric/plugin.h"
#include "starling/kernel/target.h"
#include "starling/launch/cpus.h"
#include "starling/method/registry.h"
#include "starling/report/number_text.h"
#include "starling/report/table.h"
#include "starling/topology/registry.h"
#include "starling/version.h"
#include "tool/command.h"
#include "tool/gpus.h"
#include "tool/machine.h"
#include "tool/program.h"

namespace starling::tool {
namespace {

// The information that starling-torch reports about itself.
struct Torch {
  std::string version;
  std::string blas_core;  // of OpenBLAS, or ""
  std::size_t models = 0;
};

struct DataHere {
  std::string name;
  std::string folder;
  bool here = false;
};

struct FabricHere {
  std::string name;
  std::string engine;   // "" if it is not available
  std::string problem;  // why torch is not available
};

struct Info {
  std::string compiler = fmt::format("{} {}", STARLING_COMPILER, STARLING_COMPILER_VERSION);
  std::size_t cores = launch::allowed_cpus().size();
  double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  std::optional<double> shared_memory, shared_memory_free;
  std::optional<Torch> torch;
  std::string torch_problem;
  std::optional<std::string> mpirun = in_path("mpirun");
  std::vector<DataHere> data;
  std::vector<FabricHere> fabrics;
  Gpus gpus;
  std::vector<std::string> interfaces = network_interfaces();
};

void look_for_fabrics(Info& info) {
  for (const FabricKind& kind : fabric_kinds()) {
    FabricHere here{kind.name, !kind.has_engine() ? kind.summary : "", ""};
    if (kind.has_engine()) try {
        here.engine = load_fabric(kind.name).engine();
      } catch (const Error& error) {
        here.problem = error.what();
      }
    info.fabrics.push_back(std::move(here));
  }
}

void ask_torch(Info& info) {
  const auto program = beside_us("starling-torch");
  if (!program) {
    info.torch_problem = "starling was built without libtorch";
    return;
  }
  try {
    const auto said = run_successfully({*program, "about"}, {}, std::chrono::seconds(60));
    const auto about = nlohmann::json::parse(said.out);
    info.torch = Torch{about.at("torch"), about.at("blas_core"), about.at("models").size()};
  } catch (const std::exception& error) {
    info.torch_problem = error.what();
  }
}

// Checks only that the files exist: `starling data` reads them.
bool files_are_there(const Recipe& recipe, const std::filesystem::path& folder) {
  return std::all_of(recipe.files.begin(), recipe.files.end(), [&](const DataFile& file) {
    std::error_code ignored;
    return std::filesystem::exists(folder / file.name, ignored) ||
           std::filesystem::exists(folder / (file.name + ".gz"), ignored);
  });
}

Info look_around() {
  Info info;
  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) == 0) {
    info.shared_memory = static_cast<double>(shared.f_blocks) * static_cast<double>(shared.f_frsize);
    info.shared_memory_free = static_cast<double>(shared.f_bavail) * static_cast<double>(shared.f_frsize);
  }
  ask_torch(info);
  look_for_fabrics(info);
  info.gpus = look_for_gpus();
  for (const DataSource& source : data_sources()) {
    if (!source.recipe) continue;
    const std::filesystem::path folder = data_folder(source.name);
    info.data.push_back({source.name, folder.string(), files_are_there(*source.recipe, folder)});
  }
  return info;
}

std::string blas_text(const std::string& core) {
  const std::string better = better_blas_core(core);
  return fmt::format("OpenBLAS for {}{}", core,
                     better.empty()
                         ? ""
                         : fmt::format(": it does not know this processor. With OPENBLAS_CORETYPE={} in the "
                                       "environment it is several times as fast",
                                       better));
}

void print(const Info& info) {
  Table table({{"", Align::left}, {"", Align::left}});
  table.title("starling " STARLING_VERSION);
  table.row({"build", fmt::format("{}, {}", STARLING_BUILD_TYPE, info.compiler)});
  table.row({"kernels", name(current_target())});
  table.row({"machine", machine_text()});
  table.row({"memory", human_bytes(info.memory)});
  table.row({"/dev/shm", !info.shared_memory
                             ? "is not there: processes cannot exchange blocks"
                             : fmt::format("{}, {} of it free", human_bytes(*info.shared_memory),
                                           human_bytes(*info.shared_memory_free))});
  for (const auto& [what, about] : rows_of(info.gpus)) table.row({what, about});
  table.row({"torch", info.torch ? info.torch->version : info.torch_problem});
  if (info.torch && !info.torch->blas_core.empty()) table.row({"blas", blas_text(info.torch->blas_core)});
  for (const FabricHere& one : info.fabrics)
    table.row({"fabric " + one.name, one.engine.empty() ? one.problem : one.engine});
  table.row({"interfaces", join_words(info.interfaces)});
  table.row({"mpirun", info.mpirun.value_or("is not in PATH")});
  table.row({"topologies", std::to_string(topology_families().size())});
  table.row({"methods", std::to_string(method_families().size())});
  table.row({"models", info.torch ? std::to_string(info.torch->models) : "-"});
  for (const DataHere& one : info.data)
    table.row({one.name, fmt::format("{} {}", one.here ? "in" : "not in", one.folder)});
  std::cout << table.text(color_wanted());
}

void write_json(const Info& info) {
  JsonWriter json(std::cout);
  const auto optional = [&](const char* key, const auto& value) {
    json.key(key);
    value ? json.value(*value) : json.null();
  };
  json.begin_object().member("starling", STARLING_VERSION).member("build", STARLING_BUILD_TYPE);
  json.member("compiler", info.compiler).member("kernels", name(current_target()));
  json.member("machine", machine_text()).member("cores", info.cores).member("memory", info.memory);
  optional("shared_memory", info.shared_memory);
  optional("shared_memory_free", info.shared_memory_free);
  write_gpus(json, info.gpus);
  optional("torch", info.torch ? std::optional(info.torch->version) : std::nullopt);
  optional("blas_core", info.torch && !info.torch->blas_core.empty() ? std::optional(info.torch->blas_core)
                                                                     : std::nullopt);
  optional("mpirun", info.mpirun);
  json.member("topologies", topology_families().size()).member("methods", method_families().size());
  optional("models", info.torch ? std::optional(info.torch->models) : std::nullopt);
  json.key("fabrics").begin_array();
  for (const FabricHere& one : info.fabrics)
    json.begin_object(JsonWriter::Layout::one_line)
        .member("name", one.name)
        .member("here", one.problem.empty())
        .member("about", one.problem.empty() ? one.engine : one.problem)
        .end_object();
  json.end_array().key("interfaces").begin_array();
  for (const std::string& one : info.interfaces) json.value(one);
  json.end_array();
  json.key("data").begin_array();
  for (const DataHere& one : info.data)
    json.begin_object(JsonWriter::Layout::one_line)
        .member("name", one.name)
        .member("here", one.here)
        .member("folder", one.folder)
        .end_object();
  json.end_array().end_object();
}

void print_variables() {
  std::cout << environment_page();
}

void write_variables() {
  JsonWriter json(std::cout);
  json.begin_array();
  for (const EnvironmentVariable& variable : environment_variables())
    json.begin_object()
        .member("name", variable.name)
        .member("holds", variable.holds)
        .member("default", variable.fallback)
        .member("about", variable.about)
        .member("owner", *variable.owner == '\0' ? "Starling" : variable.owner)
        .end_object();
  json.end_array();
}

}  // namespace

void add_info(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  auto variables = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("info", "What this build and this machine have, for bug reports");
  command->add_flag("--json", *as_json, "print JSON");
  command->add_flag("--variables", *variables, "print the environment variables that Starling reads");
  command->footer("Examples:\n  starling info\n  starling info --json\n  starling info --variables");
  command->callback([as_json, variables] {
    if (*variables)
      *as_json ? write_variables() : print_variables();
    else
      *as_json ? write_json(look_around()) : print(look_around());
  });
}

}  // namespace starling::tool
