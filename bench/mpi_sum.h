#pragma once

#include <mpi.h>
#include <vector>

namespace starling::bench {

/// MPI's own all-reduce, for comparison.
inline void sum_of_all(std::vector<float>& x) {
  MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

}  // namespace starling::bench
