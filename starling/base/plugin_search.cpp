#include "starling/base/plugin_search.h"

#include <algorithm>
#include <cstddef>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <vector>

#include "starling/base/environment.h"
#include "starling/base/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// The program or library that contains this code. For a program the loader knows the name it was started
// with, perhaps without a folder.
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

// The folders in which the dynamic loader searches for libraries of this module: its RUNPATH,
// LD_LIBRARY_PATH, the system's.
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

// In search order: the user's folders, the folders beside this module (build folder, installation or Python
// package), the dynamic loader's.
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

}  // namespace

fs::path find_plugin(const std::string& library, const std::string& what, const std::string& built_with) {
  const std::string file = fmt::format("lib{}.so", library);
  std::vector<std::string> searched;
  for (const fs::path& folder : plugin_folders()) {
    if (std::error_code ignored; fs::exists(folder / file, ignored)) return folder / file;
    searched.push_back(folder.string());
  }
  throw Error(fmt::format(
      "{} is missing: found no {} in {}. Set STARLING_PLUGIN_PATH to the folder that has it (installations: "
      "lib/starling), or build Starling where {} is installed",
      what, file, join_words(searched), built_with));
}

}  // namespace starling
