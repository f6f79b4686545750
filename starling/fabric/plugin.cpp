#include "starling/fabric/plugin.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <link.h>
#include <map>
#include <mutex>

#include "starling/base/error.h"
#include "starling/version.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// The program or library that holds this code. A program's own entry bears what it was started as, which may
// be a word without a folder.
struct Holder {
  fs::path file;
  void* handle = nullptr;  // of dlopen, to be closed
};

Holder holder_of_this_code() {
  Dl_info info{};
  link_map* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(&holder_of_this_code);
  std::error_code ignored;
  if (dladdr1(here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr ||
      map->l_name == nullptr || *map->l_name == '\0')
    return {fs::read_symlink("/proc/self/exe", ignored), dlopen(nullptr, RTLD_LAZY)};
  return {fs::canonical(map->l_name, ignored), dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD)};
}

// Where the loader looks for libraries of this program or library: its RUNPATH, LD_LIBRARY_PATH, the
// system's.
std::vector<fs::path> loader_folders(void* handle) {
  std::vector<fs::path> folders;
  Dl_serinfo size{};
  if (handle == nullptr || dlinfo(handle, RTLD_DI_SERINFOSIZE, &size) != 0) return folders;
  std::vector<std::byte> memory(size.dls_size);
  auto* found = reinterpret_cast<Dl_serinfo*>(memory.data());
  found->dls_size = size.dls_size;
  found->dls_cnt = size.dls_cnt;
  if (dlinfo(handle, RTLD_DI_SERINFO, found) != 0) return folders;
  for (unsigned i = 0; i < found->dls_cnt; ++i) {
    const fs::path folder = (&found->dls_serpath[0] + i)->dls_name;
    folders.push_back(folder / "starling");
    folders.push_back(folder);
  }
  return folders;
}

// In this order: where the user says, beside this code (in the build folder, where it is installed, in a
// Python package), where the loader looks.
std::vector<fs::path> plugin_folders() {
  std::vector<fs::path> folders;
  if (const char* said = std::getenv("STARLING_PLUGIN_PATH"))
    for (std::string_view rest = said; !rest.empty();) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) folders.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  const Holder holder = holder_of_this_code();
  const fs::path here = holder.file.parent_path();
  if (!here.empty())
    for (const char* there : {".", "starling", "..", "../starling", "../lib/starling", "../../lib/starling"})
      folders.push_back((here / there).lexically_normal());
  for (fs::path& folder : loader_folders(holder.handle)) folders.push_back(std::move(folder));
  if (holder.handle != nullptr) dlclose(holder.handle);
  std::vector<fs::path> once;
  for (fs::path& folder : folders)
    if (std::ranges::find(once, folder) == once.end()) once.push_back(std::move(folder));
  return once;
}

fs::path find_library(const FabricKind& kind) {
  const std::string file = fmt::format("lib{}.so", kind.library);
  std::vector<std::string> searched;
  for (const fs::path& folder : plugin_folders()) {
    if (std::error_code ignored; fs::exists(folder / file, ignored)) return folder / file;
    searched.push_back(folder.string());
  }
  throw Error(
      fmt::format("the fabric {} is not here: there is no {} in {}. Set STARLING_PLUGIN_PATH to the folder "
                  "that has it (installations: lib/starling), or install Starling where {} was found",
                  kind.name, file, join_words(searched), kind.name == "mpi" ? "MPI" : "torch"));
}

const FabricPlugin& load_library(const FabricKind& kind) {
  const fs::path path = find_library(kind);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Error(fmt::format("the fabric {} does not load: {}", kind.name, dlerror()));
  using Entry = const FabricPlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "starling_fabric"));
  const auto* version = static_cast<const char*>(dlsym(handle, "starling_fabric_version"));
  if (entry == nullptr || version == nullptr)
    throw Error(fmt::format("{} is no fabric of Starling's", path.string()));
  if (std::string_view(version) != STARLING_VERSION)
    throw Error(fmt::format("{} is of Starling {}, this program of {}: they do not fit together",
                            path.string(), version, STARLING_VERSION));
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
