#include "starling/fabric/mpi/collectives.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>

#include "starling/fabric/mpi/engine.h"

namespace starling::fabric::mpi_engine {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << 28;  // per call: MPI counts in ints
constexpr std::chrono::seconds kStopTimeout{5};

struct Known {
  DType dtype;
  MPI_Datatype type;
};
const Known* find_type(DType dtype) {
  static const Known all[] = {{DType::float32, MPI_FLOAT},
                              {DType::float64, MPI_DOUBLE},
                              {DType::int32, MPI_INT32_T},
                              {DType::int64, MPI_INT64_T}};
  const auto* found =
      std::find_if(std::begin(all), std::end(all), [&](const Known& known) { return known.dtype == dtype; });
  return found == std::end(all) ? nullptr : found;
}

}  // namespace

struct MpiCollectives::State {
  explicit State(MPI_Comm given) : comm(given) {}

  struct Sum {
    MPI_Datatype type;
    Buffer elements;  // in host memory
    std::function<void()> done;
  };

  void add_up(const Sum& sum) const {
    for (std::size_t at = 0; at < sum.elements.count; at += kMostElements) {
      const Buffer part = sum.elements.part(at, std::min(kMostElements, sum.elements.count - at));
      const int code = MPI_Allreduce(MPI_IN_PLACE, part.host_data(), static_cast<int>(part.count), sum.type,
                                     MPI_SUM, comm);
      if (code == MPI_SUCCESS) continue;
      const std::string text =
          fmt::format("starling: MPI_Allreduce failed: {}; aborting the job\n", error_text(code));
      static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || waiting.contains(next); });
      if (stopping) break;
      Sum sum = std::move(waiting.extract(next++).mapped());
      lock.unlock();
      add_up(sum);
      lock.lock();
      if (!stopping)
        sum.done();
      else
        new Sum(std::move(sum));  // NOLINT: leaked, since its callback refers to a fabric that may be gone
    }
    ended = true;
    changed.notify_all();
  }

  const MPI_Comm comm;
  std::atomic<std::uint64_t> numbers{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, Sum> waiting;
  std::uint64_t next = 0;
  bool stopping = false;
  bool ended = true;  // the thread has ended or not started
};

MpiCollectives::MpiCollectives(MPI_Comm comm) : state_(std::make_shared<State>(comm)) {}

MpiCollectives::~MpiCollectives() {
  stop();
}

bool MpiCollectives::sums(DType dtype) const {
  return find_type(dtype) != nullptr;
}

std::uint64_t MpiCollectives::take_number() {
  return state_->numbers++;
}

void MpiCollectives::sum(std::uint64_t number, Buffer elements, std::function<void()> done) {
  if (!elements.on_host()) throw_not_host_memory(elements.memory);
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return;
  state_->waiting.emplace(number, State::Sum{find_type(elements.dtype)->type, elements, std::move(done)});
  if (state_->ended) {
    state_->ended = false;
    std::thread([state = state_] { state->run(); }).detach();
  }
  state_->changed.notify_all();
}

void MpiCollectives::stop() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->waiting.clear();
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kStopTimeout, [&] { return state_->ended; });
}

}  // namespace starling::fabric::mpi_engine
