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
  std::string job;         // unique to the job and known to its ranks only
  std::string meeting;     // address:port of the store where ranks meet; "" where the engine knows
  std::string interface_;  // of the network; "" lets the engine choose
  std::chrono::milliseconds timeout{60'000};
  bool first_ranks = false;  // `size` may be less than the engine has started: only the first join
};

/// What such a shared object offers, by its function `starling_fabric`.
struct FabricPlugin {
  std::string (*engine)();  // its name and version
  std::shared_ptr<Fabric> (*join)(const FabricRequest& request);
  /// Hosts the store where ranks meet, on this address and a free port, as long as the result lives;
  /// nullptr where the engine's own launcher does.
  std::shared_ptr<void> (*host)(const std::string& address, std::uint16_t& port);
  /// For a process that comes later: waits until members let it in. It has no rank before, and the fabric has
  /// been finished where `finish` is given; nullptr where the engine knows no newcomers.
  std::shared_ptr<Fabric> (*enter)(const FabricRequest& request, const FinishFabric& finish) = nullptr;
};

/// A fabric that programs can ask for.
struct FabricKind {
  std::string name;
  std::string about;
  std::string library;  // "" for one that is always there
  std::string store;    // the one that hosts the store where ranks meet; "" where they need none
};
const std::vector<FabricKind>& fabric_kinds();

/// Throws InvalidArgument for an unknown name and Error where the shared object is missing or does not load.
const FabricPlugin& load_fabric(const std::string& name);

}  // namespace starling
