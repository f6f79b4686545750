#include "starling/fabric/plugin.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <link.h>
#include <map>
#include <mutex>

#include "starling/base/environment.h"
#include "starling/base/registry.h"
#include "starling/version.h"

namespace starling::fabric {
namespace {

namespace fs = std::filesystem;

// The program or library that contains this code. The loader's entry for a program is the name it was started
// with, which may lack the folder.
struct CodeModule {
  fs::path file;
  void* handle = nullptr;  // from dlopen; the caller closes it
};

CodeModule this_module() {
  Dl_info info{};
  link_map* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(&this_module);
  std::error_code ignored;
  if (dladdr1(here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr ||
      map->l_name == nullptr || *map->l_name == '\0')
    return {fs::read_symlink("/proc/self/exe", ignored), dlopen(nullptr, RTLD_LAZY)};
  return {fs::canonical(map->l_name, ignored), dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD)};
}

// The folders in which the dynamic loader searches libraries for this module: its RUNPATH, LD_LIBRARY_PATH,
// the system's.
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

// In this order: the user's folders, those beside this module (in the build folder, an installation, a Python
// package), those of the dynamic loader.
std::vector<fs::path> plugin_folders() {
  std::vector<fs::path> folders;
  if (const std::string configured = environment::kPluginPath.text(); !configured.empty())
    for (std::string_view rest = configured; !rest.empty();) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) folders.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  const CodeModule self = this_module();
  const fs::path here = self.file.parent_path();
  if (!here.empty())
    for (const char* there : {".", "starling", "..", "../starling", "../lib/starling", "../../lib/starling"})
      folders.push_back((here / there).lexically_normal());
  for (fs::path& folder : loader_folders(self.handle)) folders.push_back(std::move(folder));
  if (self.handle != nullptr) dlclose(self.handle);
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
  throw Error(fmt::format(
      "the plugin of the fabric {} is missing: found no {} in {}. Set STARLING_PLUGIN_PATH to the "
      "folder that has it (installations: lib/starling), or build Starling where {} is installed",
      kind.name, file, join_words(searched), kind.found_with));
}

const FabricPlugin& load_library(const FabricKind& kind) {
  const fs::path path = find_library(kind);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw Error(fmt::format("cannot load the plugin of the fabric {}: {}", kind.name, dlerror()));
  using GetPlugin = const FabricPlugin* (*)();
  const auto get_plugin = reinterpret_cast<GetPlugin>(dlsym(handle, "starling_fabric"));
  const auto* version = static_cast<const char*>(dlsym(handle, "starling_fabric_version"));
  if (get_plugin == nullptr || version == nullptr)
    throw Error(fmt::format("{} is not a fabric plugin of Starling", path.string()));
  if (std::string_view(version) != STARLING_VERSION)
    throw Error(
        fmt::format("{} belongs to Starling {}, but this program is Starling {}: install the matching plugin",
                    path.string(), version, STARLING_VERSION));
  return *get_plugin();
}

Registry<FabricKind>& all_fabrics() {
  static Registry<FabricKind> instance("fabric", {
#define STARLING_FABRIC(...) FabricKind{__VA_ARGS__},
#include "starling/fabric/list.inc"
#undef STARLING_FABRIC
                                                 });
  return instance;
}

const FabricKind& kind_with_engine(const std::string& name) {
  const FabricKind& kind = all_fabrics().find(name);
  if (kind.has_engine()) return kind;
  std::vector<std::string> names;
  for (const FabricKind& other : fabric_kinds())
    if (other.has_engine()) names.push_back(other.name);
  throw InvalidArgument(
      fmt::format("the fabric {} needs no engine; these have one: {}", name, join_words(names)));
}

}  // namespace

std::vector<FabricKind> fabric_kinds() {
  return all_fabrics().entries();
}

void register_fabric(FabricKind kind) {
  if (!kind.has_engine())
    throw InvalidArgument(fmt::format("the fabric {} has neither a plugin nor a library", kind.name));
  all_fabrics().add(std::move(kind));
}

void check_fabric(const std::string& name) {
  if (const FabricKind& kind = kind_with_engine(name); kind.plugin == nullptr) find_library(kind);
}

const FabricPlugin& load_fabric(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, const FabricPlugin*> loaded;
  const std::lock_guard lock(mutex);
  if (const auto found = loaded.find(name); found != loaded.end()) return *found->second;
  const FabricKind& kind = kind_with_engine(name);
  return *(loaded[name] = kind.plugin != nullptr ? kind.plugin : &load_library(kind));
}

}  // namespace starling::fabric
