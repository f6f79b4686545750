#pragma once

#include <memory>
#include <mpi.h>

#include "starling/fabric/network/transport.h"

namespace starling::fabric::mpi_engine {

/// A transport over a communicator, and the consensus of its ranks, which refers to the transport and must
/// not outlive it.
struct TransportParts {
  std::unique_ptr<network::Transport> transport;
  std::unique_ptr<network::Consensus> consensus;
};

/// The communicator is used exclusively and until the process ends. Collective: all of its ranks call this.
TransportParts make_parts(MPI_Comm own);

}  // namespace starling::fabric::mpi_engine
