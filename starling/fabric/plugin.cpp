#include "starling/fabric/plugin.h"

#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <mutex>

#include "starling/base/plugin_search.h"
#include "starling/base/registry.h"
#include "starling/version.h"

namespace starling::fabric {

// Every fabric in list.inc is a function `FabricKind name()` in the kind.cpp of its folder.
#define STARLING_FABRIC(name) FabricKind name();
#include "starling/fabric/list.inc"
#undef STARLING_FABRIC

namespace {

namespace fs = std::filesystem;

fs::path find_library(const FabricKind& kind) {
  return find_plugin(kind.library, fmt::format("the plugin of the fabric {}", kind.name), kind.found_with);
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
#define STARLING_FABRIC(name) name(),
#include "starling/fabric/list.inc"
#undef STARLING_FABRIC
                                                 });
  return instance;
}

// The fabric that provides the engine: for a wrapper, the wrapped one.
const std::string& engine_of(const FabricChoice& choice) {
  return choice.inner.empty() ? choice.name : choice.inner;
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

const FabricKind& find_fabric(const std::string& name) {
  return all_fabrics().find(name);
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

std::string text(const FabricChoice& choice) {
  return choice.inner.empty() ? choice.name : fmt::format("{}({})", choice.name, choice.inner);
}

std::vector<FabricChoice> fabric_choices() {
  const std::vector<FabricKind> kinds = fabric_kinds();
  std::vector<FabricChoice> choices;
  for (const FabricKind& kind : kinds) {
    choices.push_back({kind.name});
    if (kind.wrap == nullptr) continue;
    for (const FabricKind& inner : kinds)
      if (inner.has_engine()) choices.push_back({kind.name, inner.name});
  }
  return choices;
}

std::string store_of(const FabricChoice& choice) {
  return find_fabric(engine_of(choice)).store;
}

std::shared_ptr<Fabric> join_fabric(const FabricChoice& choice, const FabricRequest& request) {
  const FabricKind& kind = find_fabric(choice.name);
  if (kind.join != nullptr) return kind.join(request);
  auto fabric = load_fabric(engine_of(choice)).join(request);
  return kind.wrap == nullptr ? fabric : kind.wrap(request)(std::move(fabric));
}

std::shared_ptr<Fabric> enter_fabric(const FabricChoice& choice, const FabricRequest& request) {
  const FabricKind& kind = find_fabric(choice.name);
  const std::string& engine = engine_of(choice);
  if (!find_fabric(engine).has_engine() || load_fabric(engine).enter == nullptr)
    throw InvalidArgument(fmt::format(
        "STARLING_ENTER: the fabric {} does not admit newcomers; c10d and hybrid(c10d) do", text(choice)));
  return load_fabric(engine).enter(request, kind.wrap == nullptr ? WrapFabric() : kind.wrap(request));
}

}  // namespace starling::fabric
