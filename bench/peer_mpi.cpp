// The MPI peer of `starling bench comm`: the same operations, as usually written in MPI. Run by mpirun; rank
// 0 prints the seconds of every batch, for the slowest rank.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mpi.h>

#include "bench/mpi_sum.h"
#include "bench/work.h"

namespace starling::bench {
namespace {

// One neighbor: exchange, then average.
class OnePeer {
 public:
  OnePeer(const Work& work, int rank) : work_(work), rank_(rank), theirs_(work.elements) {}

  void operator()(std::vector<float>& x) {
    const int offset = source_offsets(work_, step_++).front();
    const int count = static_cast<int>(x.size());
    MPI_Sendrecv(x.data(), count, MPI_FLOAT, (rank_ - offset + work_.ranks) % work_.ranks, 0, theirs_.data(),
                 count, MPI_FLOAT, (rank_ + offset) % work_.ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    float* mine = x.data();
    const float* other = theirs_.data();
    for (std::size_t i = 0; i < work_.elements; ++i) mine[i] = 0.5F * mine[i] + 0.5F * other[i];
  }

 private:
  const Work& work_;
  int rank_;
  long step_ = 0;
  std::vector<float> theirs_;
};

// All neighbors of a static graph: gather them, then average in one pass.
class Neighbors {
 public:
  Neighbors(const Work& work, int rank) : elements_(work.elements) {
    std::vector<int> sources;
    std::vector<int> destinations;
    for (const int offset : source_offsets(work, 0)) {
      sources.push_back((rank + offset) % work.ranks);
      destinations.push_back((rank - offset + work.ranks) % work.ranks);
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(sources.size()), sources.data(),
                                   MPI_UNWEIGHTED, static_cast<int>(destinations.size()), destinations.data(),
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph_);
    gathered_.resize(sources.size() * elements_);
  }
  ~Neighbors() { MPI_Comm_free(&graph_); }
  Neighbors(const Neighbors&) = delete;
  Neighbors& operator=(const Neighbors&) = delete;

  void operator()(std::vector<float>& x) {
    const int count = static_cast<int>(elements_);
    MPI_Neighbor_allgather(x.data(), count, MPI_FLOAT, gathered_.data(), count, MPI_FLOAT, graph_);
    const std::size_t sources = gathered_.size() / elements_;
    const float weight = 1.0F / static_cast<float>(sources + 1);
    float* mine = x.data();
    const float* first = gathered_.data();
    if (sources == 2) {  // n = 3 and 4: a loop that the compiler turns into one pass
      const float* second = first + elements_;
      for (std::size_t i = 0; i < elements_; ++i) mine[i] = weight * (mine[i] + first[i] + second[i]);
      return;
    }
    for (std::size_t i = 0; i < elements_; ++i) {
      float sum = mine[i];
      for (std::size_t k = 0; k < sources; ++k) sum += first[k * elements_ + i];
      mine[i] = weight * sum;
    }
  }

 private:
  std::size_t elements_;
  MPI_Comm graph_ = MPI_COMM_NULL;
  std::vector<float> gathered_;
};

// A window with room for every source; a fence before and after the puts, then the average.
class PutAndFence {
 public:
  PutAndFence(const Work& work, int rank) : work_(work), rank_(rank), offsets_(source_offsets(work, 0)) {
    const auto bytes = static_cast<MPI_Aint>(offsets_.size() * work.elements * sizeof(float));
    MPI_Win_allocate(bytes, sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD, &slots_, &window_);
    std::fill(slots_, slots_ + offsets_.size() * work.elements, 0.0F);
    MPI_Win_fence(0, window_);
  }
  ~PutAndFence() { MPI_Win_free(&window_); }
  PutAndFence(const PutAndFence&) = delete;
  PutAndFence& operator=(const PutAndFence&) = delete;

  void operator()(std::vector<float>& x) {
    const int count = static_cast<int>(work_.elements);
    for (std::size_t k = 0; k < offsets_.size(); ++k)
      MPI_Put(x.data(), count, MPI_FLOAT, (rank_ - offsets_[k] + work_.ranks) % work_.ranks,
              static_cast<MPI_Aint>(k * work_.elements), count, MPI_FLOAT, window_);
    MPI_Win_fence(0, window_);
    const float weight = 1.0F / static_cast<float>(offsets_.size() + 1);
    for (std::size_t i = 0; i < work_.elements; ++i) {
      float sum = x[i];
      for (std::size_t k = 0; k < offsets_.size(); ++k) sum += slots_[k * work_.elements + i];
      x[i] = weight * sum;
    }
    MPI_Win_fence(0, window_);
  }

 private:
  const Work& work_;
  int rank_;
  std::vector<int> offsets_;
  float* slots_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

template <typename Operate>
std::vector<double> measure(const Work& work, int rank, Operate operate) {
  std::vector<float> x(work.elements, start_value(rank));
  operate(x);
  check_first(work, rank, x);
  return time_batches(
      work, [] { MPI_Barrier(MPI_COMM_WORLD); }, [&] { operate(x); });
}

std::vector<double> measure(const Work& work, int rank) {
  if (work.operation == Operation::allreduce) return measure(work, rank, sum_of_all);
  if (work.operation == Operation::window_step) {
    PutAndFence window(work, rank);
    return measure(work, rank, [&](std::vector<float>& x) { window(x); });
  }
  if (work.operation == Operation::one_peer) {
    OnePeer one_peer(work, rank);
    return measure(work, rank, [&](std::vector<float>& x) { one_peer(x); });
  }
  Neighbors neighbors(work, rank);
  return measure(work, rank, [&](std::vector<float>& x) { neighbors(x); });
}

void run(const std::vector<std::string>& arguments) {
  const Work work = from_arguments(arguments);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != work.ranks) throw std::invalid_argument("mpirun started another number of ranks");
  const std::vector<double> seconds = measure(work, rank);
  std::vector<double> slowest(seconds.size());
  MPI_Reduce(seconds.data(), slowest.data(), static_cast<int>(seconds.size()), MPI_DOUBLE, MPI_MAX, 0,
             MPI_COMM_WORLD);
  if (rank != 0) return;
  for (const double batch : slowest) std::printf("%.9g\n", batch);
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  try {
    // Pinned before MPI_Init, so that the memory that MPI shares is touched on the rank's core.
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (rank != nullptr)
      starling::bench::take_place(starling::bench::from_arguments(arguments),
                                  starling::bench::parse_number<int>(rank));
    MPI_Init(&argc, &argv);
    starling::bench::run(arguments);
    MPI_Finalize();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "starling_peer_mpi: %s\n", error.what());
    std::fflush(stderr);
    int started = 0;
    MPI_Initialized(&started);
    if (started != 0) MPI_Abort(MPI_COMM_WORLD, 2);
    return 2;
  }
}
