#include "fabric/mpi_ranks.h"

#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/fabric/plugin.h"

namespace starling::fabric {
namespace {

constexpr unsigned kMostSeconds = 60;  // a rank that runs longer hangs

// From the environment, before MPI is initialized: Open MPI and MPICH.
Rank number_from(const char* open_mpi, const char* mpich) {
  for (const char* name : {open_mpi, mpich})
    if (const char* text = std::getenv(name)) return static_cast<Rank>(std::atoi(text));
  throw Error("tests on MPI are started by mpirun");
}
Rank world_rank() {
  return number_from("OMPI_COMM_WORLD_RANK", "PMI_RANK");
}
Rank world_size() {
  return number_from("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
}

FabricRequest request(Rank size) {
  FabricRequest request;
  request.rank = world_rank();
  request.size = size;
  request.first_ranks = true;
  return request;
}

// Sends the results of the first ranks to all ranks.
std::vector<RankEnd> tell_everybody(const RankEnd& mine, Rank first) {
  static const std::shared_ptr<Fabric> world = load_fabric("mpi").join(request(world_size()));
  const Rank rank = world->rank();
  std::vector<RankEnd> ends(static_cast<std::size_t>(first), mine);
  if (rank < first) {
    const Outgoing message = world->reserve(1 + mine.message.size());
    message.bytes()[0] = std::byte{mine.ok};
    std::memcpy(message.bytes().data() + 1, mine.message.data(), mine.message.size());
    for (Rank to = 0; to < world->size(); ++to)
      if (to != rank) world->post(message, {}, to);
  }
  for (Rank from = 0; from < first; ++from) {
    if (from == rank) continue;
    for (;;) {
      const std::uint32_t wake_count = world->wake_count();
      if (const auto arrival = world->poll(from)) {
        const auto* text = reinterpret_cast<const char*>(arrival->bytes().data());
        ends[static_cast<std::size_t>(from)] = {text[0] != 0, 0, {text + 1, arrival->bytes().size() - 1}};
        break;
      }
      if (!world->alive(from)) throw Error(fmt::format("rank {} runs no tests any more", from));
      world->sleep(wake_count, {&from, 1}, Deadline::max());
    }
  }
  return ends;
}

std::vector<RankEnd> on_mpi(Rank size, const RankBody& body, const Faults& faults) {
  if (size > world_size()) throw Error(fmt::format("{} ranks are too few for {}", world_size(), size));
  RankEnd mine{true, 0, ""};
  if (world_rank() < size) {
    alarm(kMostSeconds);
    try {
      const auto fabric = load_fabric("mpi").join(request(size));
      body(faults.delay > 0 ? make_faulty(fabric, faults) : fabric);
    } catch (const std::exception& error) {
      mine = {false, 0, error.what()};
    }
    alarm(0);
  }
  return tell_everybody(mine, size);
}

}  // namespace

std::vector<Launcher> mpi_launchers() {
  if (world_rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const auto start = [](const Faults& faults) {
    return [faults](Rank size, const RankBody& body) { return on_mpi(size, body, faults); };
  };
  Faults late;
  late.seed = 5;
  late.delay = 0.1;
  late.longest_delay = std::chrono::microseconds(500);
  return {{"mpi", true, false, start({}), world_size()},
          {"late_mpi", true, false, start(late), world_size()}};
}

}  // namespace starling::fabric
