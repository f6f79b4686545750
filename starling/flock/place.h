#pragma once

#include <optional>
#include <string>

#include "starling/base/types.h"

namespace starling {

/// What the launcher that started this process says of it.
struct Place {
  std::string launcher;
  Rank rank = 0;
  Rank size = 1;
  std::string job;  // tells jobs apart; empty where the launcher has no name for it
  bool several_hosts = false;
  std::string network;  // the fabric for several hosts
};

/// By the variables of starling run, mpirun, MPICH's mpiexec, srun or torchrun, in this order; nothing for a
/// process that was started alone.
std::optional<Place> find_place();

/// How ranks talk: with `hybrid`, those of one host through shared memory and the others over `name`.
struct FabricChoice {
  std::string name;
  bool hybrid = false;
};

/// STARLING_FABRIC, or what fits the place.
FabricChoice choose_fabric(const Place& place);
std::string text(const FabricChoice& choice);

}  // namespace starling
