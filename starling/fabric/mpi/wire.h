#pragma once

#include <memory>
#include <mpi.h>

#include "starling/fabric/network/wire.h"

namespace starling::mpi_engine {

/// Frames over a communicator, and the register of its ranks, which one of them keeps. The wire lives longer.
struct Parts {
  std::unique_ptr<network::Wire> wire;
  std::unique_ptr<network::Ledger> ledger;
};

/// The communicator is for nobody else's use and stays until the process ends. All of its ranks call this.
Parts make_parts(MPI_Comm own);

}  // namespace starling::mpi_engine
