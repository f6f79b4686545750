#pragma once

#include <memory>
#include <mpi.h>

#include "starling/fabric/collectives.h"

namespace starling::fabric::mpi_engine {

/// MPI_Allreduce on a thread of its own, which starts with the first sum; Open MPI's nonblocking all-reduce
/// takes twice as long. Point-to-point messages of the same communicator do not interfere. Thread-safe.
class MpiCollectives final : public Collectives {
 public:
  explicit MpiCollectives(MPI_Comm comm);
  ~MpiCollectives() override;

  bool sums(DType dtype) const override;
  std::uint64_t take_number() override;
  void sum(std::uint64_t number, Buffer elements, std::function<void()> done) override;
  /// Abandons a sum that other ranks never join.
  void stop();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace starling::fabric::mpi_engine
