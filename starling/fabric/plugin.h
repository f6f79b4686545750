#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "starling/fabric/fabric.h"

// Fabrics that need an engine (torch, MPI) are shared objects of their own, loaded when a program asks for
// one: nothing else links the engine.

namespace starling {

/// What a rank knows when it joins.
struct FabricRequest {
  Rank rank = 0;
  Rank size = 1;
  std::string job;         // unique to the job and known to its ranks only: the store's token
  std::string meeting;     // address:port of the launcher's store; "" where the engine knows where to meet
  std::string interface_;  // of the network; "" lets the engine choose
  std::chrono::milliseconds timeout{60'000};
  bool first_ranks = false;  // `size` may be less than the engine has started: only the first join
};

/// What such a shared object offers, by its function `starling_fabric`. Its text `starling_fabric_version` is
/// the version of Starling, which must be the program's own.
struct FabricPlugin {
  std::string (*engine)();  // its name and version
  std::shared_ptr<Fabric> (*join)(const FabricRequest& request);
  /// For a process that comes later: waits until members let it in. It has no rank before, and the fabric has
  /// been finished where `finish` is given; nullptr where the engine knows no newcomers.
  std::shared_ptr<Fabric> (*enter)(const FabricRequest& request, const FinishFabric& finish) = nullptr;
};

/// A fabric that programs can ask for.
struct FabricKind {
  std::string name;
  std::string about;
  std::string library;  // "" for one that is always there
  std::string store;    // the one whose ranks meet in a store that the launcher hosts; "" where none does
};
const std::vector<FabricKind>& fabric_kinds();

/// Throws as load_fabric does where the shared object is missing, and loads nothing. Shared objects are
/// looked for in STARLING_PLUGIN_PATH (folders with colons between them), beside the program or library that
/// this code is in, in lib/starling of its installation, and where the loader looks for its libraries.
void check_fabric(const std::string& name);

/// Throws InvalidArgument for an unknown name and Error where the shared object is missing or does not load.
const FabricPlugin& load_fabric(const std::string& name);

}  // namespace starling
