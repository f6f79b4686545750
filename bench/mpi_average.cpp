// The neighbor average through the mpi fabric beside the same operation written directly in MPI, alternating,
// in one run:
//
//   mpirun -n 4 starling_mpi_average [ELEMENTS [ROUNDS]]

#include <cstdio>
#include <exception>
#include <mpi.h>

#include "bench/mpi_by_hand.h"
#include "starling/base/median.h"
#include "starling/fabric/plugin.h"
#include "starling/flock/flock.h"

namespace starling::bench {
namespace {

// The slowest rank's seconds per operation; the median over the batches.
template <typename Operate>
double measure(const Work& work, int rank, Operate operate) {
  std::vector<float> x(work.elements, start_value(rank));
  operate(x);
  check_first(work, rank, x);
  std::vector<double> seconds = time_batches(
      work, [] { MPI_Barrier(MPI_COMM_WORLD); }, [&] { operate(x); });
  MPI_Allreduce(MPI_IN_PLACE, seconds.data(), static_cast<int>(seconds.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  return median(std::move(seconds)) / work.per_batch;
}

double measure_flock(const Work& work, const std::shared_ptr<Fabric>& fabric) {
  Flock flock(fabric);
  if (work.operation == Operation::one_peer) flock.set_schedule("one-peer-exponential");
  return measure(work, fabric->rank(), [&](std::vector<float>& x) { flock.neighbor_allreduce(x); });
}

void run(const std::vector<std::string>& arguments) {
  Work work;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &work.ranks);
  work.elements = arguments.empty() ? 10'000'000 : parse_number<std::size_t>(arguments[0]);
  const int rounds = arguments.size() < 2 ? 5 : parse_number<int>(arguments[1]);
  work.batches = 5;
  work.per_batch = work.elements < 1'000'000 ? 200 : 2;
  FabricRequest request;
  request.rank = rank;
  request.size = work.ranks;
  for (const Operation operation : {Operation::one_peer, Operation::exponential}) {
    work.operation = operation;
    std::vector<double> ratios;
    std::vector<double> ours;
    for (int round = 0; round < rounds; ++round) {
      const double by_hand = measure(work, rank, AverageByHand(work, rank));
      ours.push_back(measure_flock(work, load_fabric("mpi").join(request)));
      ratios.push_back(by_hand / ours.back());
    }
    const double ratio = median(ratios);
    if (rank == 0)
      std::printf("%s, n = %d, %zu floats: %.2f ms, %.2f times as fast as by hand (at least 0.9: %s)\n",
                  kOperationNames[static_cast<std::size_t>(operation)].data(), work.ranks, work.elements,
                  median(ours) * 1e3, ratio, ratio >= 0.9 ? "met" : "not met");
  }
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  try {
    starling::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "starling_mpi_average: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
  return 0;
}
