#include "starling/fabric/plugin.h"

#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <mutex>

#include "starling/base/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// Beside the program or library that holds this code, in the build folder as well as where it is installed.
std::vector<fs::path> plugin_folders() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&plugin_folders), &info) == 0 || info.dli_fname == nullptr)
    return {};
  std::error_code ignored;
  const fs::path here = fs::canonical(info.dli_fname, ignored).parent_path();
  return {here, here / "..", here / "../lib/starling", here / "../../lib/starling"};
}

fs::path find_library(const FabricKind& kind) {
  const std::string file = fmt::format("lib{}.so", kind.library);
  for (const fs::path& folder : plugin_folders())
    if (std::error_code ignored; fs::exists(folder / file, ignored)) return folder / file;
  throw Error(
      fmt::format("the fabric {} is not built in here: there is no {} beside this program", kind.name, file));
}

const FabricPlugin& load_library(const FabricKind& kind) {
  const fs::path path = find_library(kind);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Error(fmt::format("the fabric {} does not load: {}", kind.name, dlerror()));
  using Entry = const FabricPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "starling_fabric"));
  if (entry == nullptr) throw Error(fmt::format("{} is no fabric of Starling's", path.string()));
  return *entry();
}

const FabricKind& kind_with_engine(const std::string& name) {
  std::vector<std::string> names;
  for (const FabricKind& kind : fabric_kinds()) {
    if (kind.library.empty()) continue;
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw InvalidArgument(
      fmt::format("'{}' is no fabric with an engine; there are: {}", name, join_words(names)));
}

}  // namespace

const std::vector<FabricKind>& fabric_kinds() {
  static const std::vector<FabricKind> kinds = {
      {"local", "processes of one host, through shared memory", "", ""},
      {"c10d", "torch.distributed: Gloo over TCP between hosts", "starling_c10d", "c10d"},
      {"hybrid", "shared memory within a host, c10d between hosts; hybrid(mpi): MPI between them", "",
       "c10d"},
      {"mpi", "MPI, as mpirun and srun start it", "starling_mpi", ""},
  };
  return kinds;
}

void check_fabric(const std::string& name) {
  find_library(kind_with_engine(name));
}

const FabricPlugin& load_fabric(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, const FabricPlugin*> loaded;
  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(name); found != loaded.end()) return *found->second;
  return *(loaded[name] = &load_library(kind_with_engine(name)));
}

}  // namespace starling
