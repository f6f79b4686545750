#include "starling/fabric/mpi/mpi.h"

#include <chrono>
#include <fmt/format.h>
#include <numeric>
#include <thread>
#include <vector>

#include "starling/base/error.h"
#include "starling/fabric/mpi/engine.h"
#include "starling/fabric/mpi/wire.h"
#include "starling/fabric/network/network.h"
#include "starling/record/log.h"

namespace starling {
namespace {

using mpi_engine::Engine;

constexpr int kFirstRanksTag = 0x5354;
constexpr int kMeetTag = 0x5355;

std::shared_ptr<Fabric> fabric_over(MPI_Comm own, std::unique_lock<std::mutex> turn) {
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  auto parts = mpi_engine::make_parts(own);
  turn = {};
  return make_network_fabric(std::move(parts.wire), std::move(parts.ledger));
}

void wait_for_all(Engine& engine, std::vector<MPI_Request>& requests) {
  for (int done = 0; done == 0;) {
    {
      const auto turn = engine.turn();
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    }
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  requests.clear();
}

// Where threads take turns with MPI, nobody may wait inside it for one who still waits for messages that
// another thread here has to send: the first ranks go in when all have come, as rank 0 says.
void meet(Engine& engine, int rank, int count) {
  const int first = rank == 0 ? 1 : 0;
  const int last = rank == 0 ? count : 1;
  std::vector<MPI_Request> requests;
  for (const bool sends : {rank != 0, rank == 0}) {
    auto turn = engine.turn();
    for (int peer = first; peer < last; ++peer) {
      MPI_Request& request = requests.emplace_back();
      if (sends)
        MPI_Isend(nullptr, 0, MPI_BYTE, peer, kMeetTag, MPI_COMM_WORLD, &request);
      else
        MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kMeetTag, MPI_COMM_WORLD, &request);
    }
    turn = {};
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
  mpi_engine::check(code, "the first ranks get no communicator");
  return own;
}

}  // namespace

std::shared_ptr<Fabric> adopt_mpi(MPI_Comm communicator) {
  Engine& engine = Engine::get();
  auto turn = engine.turn();
  MPI_Comm own = MPI_COMM_NULL;
  mpi_engine::check(MPI_Comm_dup(communicator, &own), "a communicator cannot be duplicated");
  return fabric_over(own, std::move(turn));
}

std::shared_ptr<Fabric> join_mpi(const FabricRequest& request) {
  read_log_level();
  Engine& engine = Engine::get();
  int rank = 0;
  int size = 1;
  {
    const auto turn = engine.turn();
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
  if (!engine.concurrent()) meet(engine, rank, request.size);
  if (!part) return adopt_mpi(MPI_COMM_WORLD);
  auto turn = engine.turn();
  const MPI_Comm own = first_ranks(request.size);
  return fabric_over(own, std::move(turn));
}

}  // namespace starling
