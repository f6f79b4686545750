#include "starling/base/extension.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <mutex>
#include <set>
#include <string_view>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/registry.h"
#include "starling/version.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

void* open_library(const fs::path& file, int mode) {
  void* handle = dlopen(file.c_str(), mode | RTLD_LOCAL);
  if (handle == nullptr) throw Error(fmt::format("cannot load {}: {}", file.string(), dlerror()));
  return handle;
}

// Binds functions lazily, after the version check: a library of another version may lack some symbols.
void register_from(const fs::path& file) {
  void* handle = open_library(file, RTLD_LAZY);
  using Entry = void (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "starling_extension"));
  const auto* version = static_cast<const char*>(dlsym(handle, "starling_extension_version"));
  if (entry == nullptr || version == nullptr)
    throw Error(
        fmt::format("{} is not a Starling extension: it has no STARLING_EXTENSION() {{ ... }} "
                    "(include starling/extension.h)",
                    file.string()));
  if (std::string_view(version) != STARLING_VERSION)
    throw Error(fmt::format("{} was built against Starling {}, this program is {}; build it again",
                            file.string(), version, STARLING_VERSION));
  open_library(file, RTLD_NOW);
  const std::size_t before = registrations();
  try {
    entry();
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}", file.string(), error.what()));
  }
  if (registrations() == before)
    throw Error(
        fmt::format("{} registered nothing; call register_topology, register_method, register_codec or "
                    "register_objective in STARLING_EXTENSION()",
                    file.string()));
}

}  // namespace

void load_extension(const fs::path& file) {
  static std::mutex mutex;
  static std::set<fs::path> loaded;
  std::error_code error;
  const fs::path path = fs::canonical(file, error);
  if (error) throw Error(fmt::format("cannot load {}: {}", file.string(), error.message()));
  const std::lock_guard lock(mutex);
  if (!loaded.contains(path)) register_from(path);
  loaded.insert(path);
}

void load_extensions(const std::vector<std::string>& files) {
  std::string all = environment::kLoad.text();
  for (const std::string& file : files) {
    load_extension(file);
    if (!all.empty()) all += ':';
    all += fs::canonical(file).string();
  }
  setenv(environment::kLoad.name, all.c_str(), 1);
}

void load_extensions_of_environment() {
  const std::string files = environment::kLoad.text();
  std::string_view rest = files;
  while (!rest.empty()) {
    const std::string_view file = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), file.size() + 1));
    if (!file.empty()) load_extension(fs::path(file));
  }
}

}  // namespace starling
