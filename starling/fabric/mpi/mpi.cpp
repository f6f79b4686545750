#include "starling/fabric/mpi/mpi.h"

#include <chrono>
#include <fmt/format.h>
#include <numeric>
#include <thread>
#include <vector>

#include "starling/base/error.h"
#include "starling/fabric/mpi/engine.h"
#include "starling/fabric/mpi/mpi_transport.h"
#include "starling/fabric/network/network.h"
#include "starling/record/log.h"

namespace starling::fabric {
namespace {

using mpi_engine::Engine;

constexpr int kFirstRanksTag = 0x5354;
constexpr int kArrivalTag = 0x5355;

std::shared_ptr<Fabric> fabric_over(MPI_Comm own, std::unique_lock<std::mutex> mpi_lock) {
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  auto parts = mpi_engine::make_parts(own);
  mpi_lock = {};
  return make_network_fabric(std::move(parts.transport), std::move(parts.consensus));
}

void wait_for_all(Engine& engine, std::vector<MPI_Request>& requests) {
  for (int done = 0; done == 0;) {
    {
      const auto mpi_lock = engine.call_lock();
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    }
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  requests.clear();
}

// A barrier that never blocks inside MPI. If MPI calls are serialized, a rank must not block in MPI_Comm_dup
// while its other threads have to send messages that the missing rank waits for: rank 0 tells the first ranks
// when all arrived.
void wait_for_first_ranks(Engine& engine, int rank, int count) {
  const int first = rank == 0 ? 1 : 0;
  const int last = rank == 0 ? count : 1;
  std::vector<MPI_Request> requests;
  for (const bool sends : {rank != 0, rank == 0}) {
    auto mpi_lock = engine.call_lock();
    for (int peer = first; peer < last; ++peer) {
      MPI_Request& request = requests.emplace_back();
      if (sends)
        MPI_Isend(nullptr, 0, MPI_BYTE, peer, kArrivalTag, MPI_COMM_WORLD, &request);
      else
        MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kArrivalTag, MPI_COMM_WORLD, &request);
    }
    mpi_lock = {};
    wait_for_all(engine, requests);
  }
}

MPI_Comm first_ranks(int count) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group first = MPI_GROUP_NULL;
  MPI_Comm own = MPI_COMM_NULL;
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, count, ranks.data(), &first);
  const int code = MPI_Comm_create_group(MPI_COMM_WORLD, first, kFirstRanksTag, &own);
  MPI_Group_free(&first);
  MPI_Group_free(&world);
  mpi_engine::check(code, "cannot create a communicator of the first ranks");
  return own;
}

}  // namespace

std::shared_ptr<Fabric> adopt_mpi(MPI_Comm communicator) {
  Engine& engine = Engine::get();
  auto mpi_lock = engine.call_lock();
  MPI_Comm own = MPI_COMM_NULL;
  mpi_engine::check(MPI_Comm_dup(communicator, &own), "cannot duplicate the communicator");
  return fabric_over(own, std::move(mpi_lock));
}

std::shared_ptr<Fabric> join_mpi(const FabricRequest& request) {
  read_log_level();
  Engine& engine = Engine::get();
  int rank = 0;
  int size = 1;
  {
    const auto mpi_lock = engine.call_lock();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  const bool part = request.first_ranks && request.size < size;
  if (request.rank != rank || (request.size != size && !part))
    throw InvalidArgument(fmt::format(
        "asked for rank {} of {}, but MPI says that this is rank {} of {}{}", request.rank, request.size,
        rank, size,
        size == 1 ? "; start ranks with mpirun, or with srun of a Slurm that knows this MPI (srun --mpi=pmix)"
                  : ""));
  if (!engine.concurrent()) wait_for_first_ranks(engine, rank, request.size);
  if (!part) return adopt_mpi(MPI_COMM_WORLD);
  auto mpi_lock = engine.call_lock();
  const MPI_Comm own = first_ranks(request.size);
  return fabric_over(own, std::move(mpi_lock));
}

}  // namespace starling::fabric
