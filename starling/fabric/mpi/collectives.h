#pragma once

#include <memory>
#include <mpi.h>

#include "starling/fabric/collectives.h"

namespace starling::mpi_engine {

/// MPI_Allreduce on a thread of its own, which starts with the first sum: in Open MPI, those that do not
/// block take twice as long. Messages between two ranks of the communicator do not disturb it.
class MpiCollectives final : public Collectives {
 public:
  explicit MpiCollectives(MPI_Comm comm);
  ~MpiCollectives() override;

  bool sums(DType dtype) const override;
  std::uint64_t take_number() override;
  void sum(std::uint64_t number, DType dtype, void* data, std::size_t count,
           std::function<void()> done) override;
  /// A sum that others never join is left to itself.
  void stop();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace starling::mpi_engine
