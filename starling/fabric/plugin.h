#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/fabric/fabric.h"

// Fabrics that need an engine (torch, MPI) are plugins: shared objects that are loaded on demand, so that
// nothing else links the engine.

namespace starling::fabric {

/// The parameters of a rank that joins a fabric.
struct FabricRequest {
  Rank rank = 0;
  Rank size = 1;
  std::string job;            // unique to the job and secret: the token of its store
  std::string store_address;  // address:port of the launcher's store; "": the engine has its own rendezvous
  std::string interface_;     // network interface; "": the engine chooses
  std::chrono::milliseconds timeout{60'000};
  bool first_ranks =
      false;      // allow `size` to be less than what the engine has started: only the first ranks join
  int times = 0;  // how often this process has joined before
};

/// The interface of a plugin, returned by its function `starling_fabric`. Its string
/// `starling_fabric_version` must equal the program's version of Starling.
struct FabricPlugin {
  std::string (*engine)();  // name and version of the engine
  std::shared_ptr<Fabric> (*join)(const FabricRequest& request);
  /// For a newcomer to a running job, which has no rank yet: waits until the members admit it. `wrap` (may be
  /// empty) is applied to the new fabric. Null if the engine does not support newcomers.
  std::shared_ptr<Fabric> (*enter)(const FabricRequest& request, const WrapFabric& wrap) = nullptr;
};

/// A fabric that programs can name. It is built in (`join`), has an engine that may connect hosts (a plugin,
/// loaded from a shared library or provided by the program), or wraps a fabric with an engine (`wrap`).
struct FabricKind {
  std::string name;
  std::string summary;
  std::string library = {};     // the shared object with its engine
  std::string store = {};       // the fabric whose ranks meet in a store that the launcher hosts, if any
  std::string found_with = {};  // the software that an installation needs for it
  const FabricPlugin* plugin = nullptr;  // used in place of a shared library
  std::shared_ptr<Fabric> (*join)(const FabricRequest& request) = nullptr;
  WrapFabric (*wrap)(const FabricRequest& request) = nullptr;
  bool needs_job = false;                  // ranks on one host find each other by the job's name
  std::vector<Parameter> parameters = {};  // none so far
  std::vector<std::string> aliases = {};

  bool has_engine() const { return !library.empty() || plugin != nullptr; }
};

/// All fabrics in the order of fabric/list.inc, then those that the program registered.
std::vector<FabricKind> fabric_kinds();
/// Throws InvalidArgument for an unknown name.
const FabricKind& find_fabric(const std::string& name);

/// Registers a fabric under a new name, for STARLING_FABRIC and `hybrid(name)`. It has a plugin, which must
/// outlive all flocks, or a library. Thread-safe.
void register_fabric(FabricKind kind);

/// Checks that the plugin of a fabric exists, without loading it; throws like load_fabric(). Searches
/// STARLING_PLUGIN_PATH (folders separated by colons), the folder of the program or library that contains
/// this code, lib/starling of its installation, and the dynamic loader's folders.
void check_fabric(const std::string& name);

/// Loads a plugin. Throws InvalidArgument for an unknown name and Error if the plugin is missing or does not
/// load.
const FabricPlugin& load_fabric(const std::string& name);

/// The value of STARLING_FABRIC: a fabric, or one that wraps another, as in `hybrid(mpi)`.
struct FabricChoice {
  std::string name;
  std::string inner = {};  // the fabric that `name` wraps
};

std::string text(const FabricChoice& choice);
/// All valid choices. A wrapper may also be named alone: the launcher then decides what it wraps.
std::vector<FabricChoice> fabric_choices();
/// The fabric whose store the ranks use for the rendezvous; "" if they use none.
std::string store_of(const FabricChoice& choice);

std::shared_ptr<Fabric> join_fabric(const FabricChoice& choice, const FabricRequest& request);
/// For newcomers: see FabricPlugin::enter. Throws InvalidArgument if the fabric does not admit them.
std::shared_ptr<Fabric> enter_fabric(const FabricChoice& choice, const FabricRequest& request);

}  // namespace starling::fabric
