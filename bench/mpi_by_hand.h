#pragma once

#include <mpi.h>
#include <utility>
#include <vector>

#include "bench/work.h"
#include "starling/kernel/combine.h"

namespace starling::bench {

/// A neighbor average written directly in MPI: receives are posted first, then sends; the average follows in
/// one pass when all messages have arrived.
class AverageByHand {
 public:
  AverageByHand(Work work, int rank) : work_(std::move(work)), rank_(rank) {}

  void operator()(std::vector<float>& x) {
    const std::vector<int> offsets = source_offsets(work_, step_++);
    const auto count = static_cast<int>(x.size());
    theirs_.resize(offsets.size());
    std::vector<MPI_Request> requests;
    const double weight = 1.0 / static_cast<double>(offsets.size() + 1);
    std::vector<Term> terms = {{x.data(), weight}};
    for (std::size_t k = 0; k < offsets.size(); ++k) {
      theirs_[k].resize(x.size());
      terms.push_back({theirs_[k].data(), weight});
      MPI_Irecv(theirs_[k].data(), count, MPI_FLOAT, (rank_ + offsets[k]) % work_.ranks, 0, MPI_COMM_WORLD,
                &requests.emplace_back());
    }
    for (const int offset : offsets)
      MPI_Isend(x.data(), count, MPI_FLOAT, (rank_ - offset + work_.ranks) % work_.ranks, 0, MPI_COMM_WORLD,
                &requests.emplace_back());
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    combine(DType::float32, x.data(), terms, x.size());
  }

 private:
  Work work_;
  int rank_;
  long step_ = 0;
  std::vector<std::vector<float>> theirs_;
};

}  // namespace starling::bench
