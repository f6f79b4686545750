#include "bench/contenders.h"

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <ctime>
#include <fmt/format.h>
#include <sstream>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

#include "bench/ranks.h"
#include "starling/base/error.h"
#include "starling/base/median.h"
#include "starling/base/random.h"
#include "starling/base/stopwatch.h"
#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"
#include "starling/launch/environment.h"
#include "tool/program.h"

namespace starling::bench {
namespace {

constexpr std::chrono::seconds kLimit{120};  // a case takes a few seconds

// A hash of all bits, to compare ranks.
std::int64_t fingerprint(const std::vector<float>& x) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float value : x) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3;
  return std::bit_cast<std::int64_t>(hash);
}

// Throws unless all ranks have the same bits after a sum whose order matters.
void check_same_bits(Flock& flock, std::size_t elements) {
  std::vector<float> x(elements);
  Random random(static_cast<std::uint64_t>(flock.rank()), 0, 0);
  for (float& value : x) value = static_cast<float>(random.uniform() - 0.5);
  flock.allreduce(x);
  const std::array<std::int64_t, 1> mine = {fingerprint(x)};
  for (const std::int64_t theirs : flock.allgather(mine))
    if (theirs != mine[0]) throw Error("the sum differs from rank to rank");
}

Flock join(const std::string& job, const Work& work, int rank) {
  take_place(work, rank);
  Flock flock(join_local(job, rank, work.ranks));
  flock.set_timeout(kLimit);
  if (work.operation == Operation::one_peer) flock.set_schedule("one-peer-exponential");
  return flock;
}

std::vector<double> be_starling(const std::string& job, const Work& work, int rank) {
  Flock flock = join(job, work, rank);
  std::vector<float> x(work.elements, start_value(rank));
  const auto operate = [&] {
    if (work.operation == Operation::allreduce) {
      flock.allreduce(x);
    } else {
      flock.neighbor_allreduce(x);
    }
  };
  operate();
  check_first(work, rank, x);
  if (work.operation == Operation::allreduce) check_same_bits(flock, work.elements);
  return time_batches(
      work, [&] { flock.barrier(); }, operate);
}

// A program that writes its next values directly to outgoing memory. Its computation is not communication, so
// after the first step, which shows that the result is right, it writes one element per page.
std::vector<double> be_window(const std::string& job, const Work& work, int rank) {
  Flock flock = join(job, work, rank);
  std::vector<float> x(work.elements, start_value(rank));
  Window window = flock.create_window(x, "bench", {.zero = true, .readable = false});
  return time_batches(
      work, [&] { flock.barrier(); },
      [&] {
        window.put();
        if (work.operation == Operation::window_step) window.update();
      });
}

std::vector<double> be_relay(const std::string& job, const Work& work, int rank) {
  Flock flock = join(job, work, rank);
  std::vector<float> x(work.elements, start_value(rank));
  Relay relay = flock.relay("chain");
  return time_batches(
      work, [&] { flock.barrier(); }, [&] { relay.average(x); });
}

// The memory traffic of puts (a copy for every neighbor), and of an update or a step of a relay.
std::vector<double> be_other_ceiling(const Work& work, int rank, const std::function<void()>& meet) {
  take_place(work, rank);
  const bool relays = work.operation == Operation::relay;
  const std::size_t ends = rank == 0 || rank + 1 == work.ranks ? 1 : 2;
  const std::size_t d =
      relays ? std::min(ends, static_cast<std::size_t>(work.ranks - 1)) : source_offsets(work, 0).size();
  std::vector<float> x(work.elements, 1.0F);
  std::vector<std::vector<float>> outgoing(d, x);
  // Received data is as fresh as sent data; otherwise it would stay in the cache, unlike messages.
  std::vector<std::vector<float>> before = outgoing;
  const double weight = 1.0 / static_cast<double>(d + 1);
  constexpr std::size_t kChunk = 16'384;  // elements that the relay processes at a time
  return time_batches(work, meet, [&] {
    if (relays) {
      std::swap(outgoing, before);
      for (std::size_t done = 0; done < work.elements; done += kChunk)
        for (std::size_t to = 0; to < d; ++to) {
          std::vector<Term> terms = {{x.data() + done, 1}};
          for (std::size_t k = 0; k < d; ++k)
            if (k != to) terms.push_back({before[k].data() + done, 1});
          combine(DType::float32, outgoing[to].data() + done, terms, std::min(kChunk, work.elements - done),
                  Store::streaming);
        }
    } else {
      for (std::vector<float>& slot : outgoing) copy_bytes(slot.data(), x.data(), x.size() * sizeof(float));
    }
    if (work.operation == Operation::window_put) return;
    std::vector<Term> terms = {{x.data(), weight}};
    for (const std::vector<float>& block : outgoing) terms.push_back({block.data(), weight});
    combine(DType::float32, x.data(), terms, x.size());
  });
}

std::vector<double> be_zero_copy(const std::string& job, const Work& work, int rank) {
  constexpr std::size_t kPage = 4096 / sizeof(float);
  Flock flock = join(job, work, rank);
  std::vector<float> out(work.elements);
  auto first = flock.outgoing<float>(work.elements);
  std::fill(first.begin(), first.end(), start_value(rank));
  flock.neighbor_allreduce(std::move(first), out);
  check_first(work, rank, out);
  return time_batches(
      work, [&] { flock.barrier(); },
      [&] {
        auto slot = flock.outgoing<float>(work.elements);
        for (std::size_t i = 0; i < work.elements; i += kPage) slot[i] = 1;
        flock.neighbor_allreduce(std::move(slot), out);
      });
}

// The kernels that our operation calls, on private memory. All ranks start together and share the memory bus
// like the real ones.
std::vector<double> be_ceiling(const Work& work, int rank, bool zero_copy,
                               const std::function<void()>& meet) {
  take_place(work, rank);
  const std::size_t sources = source_offsets(work, 0).size();
  const double weight = 1.0 / static_cast<double>(sources + 1);
  std::vector<float> x(work.elements, 1.0F);
  std::vector<float> slot(work.elements, 1.0F);
  const std::vector<std::vector<float>> theirs(sources, slot);  // the neighbors' slots
  std::vector<Term> terms = {{zero_copy ? slot.data() : x.data(), weight}};
  for (const std::vector<float>& block : theirs) terms.push_back({block.data(), weight});
  return time_batches(work, meet, [&] {
    if (!zero_copy) copy_bytes(slot.data(), x.data(), x.size() * sizeof(float));
    combine(DType::float32, x.data(), terms, x.size());
  });
}

std::vector<double> run_own(Contender contender, const Work& work) {
  const std::string job = launch::random_token();
  return slowest(run_ranks(work.ranks, static_cast<std::size_t>(work.batches), kLimit,
                           [&](int rank, const std::function<void()>& meet) {
                             const bool window = work.operation == Operation::window_put ||
                                                 work.operation == Operation::window_step;
                             if (contender == Contender::starling && window)
                               return be_window(job, work, rank);
                             if (contender == Contender::starling && work.operation == Operation::relay)
                               return be_relay(job, work, rank);
                             if (contender == Contender::ceiling &&
                                 (window || work.operation == Operation::relay))
                               return be_other_ceiling(work, rank, meet);
                             if (contender == Contender::starling) return be_starling(job, work, rank);
                             if (contender == Contender::zero_copy) return be_zero_copy(job, work, rank);
                             return be_ceiling(work, rank, contender == Contender::zero_copy_ceiling, meet);
                           }));
}

// Ranks pin themselves like ours. MPI is fastest if it spins with a core per rank, and yields otherwise.
std::vector<std::string> mpi_command(const Work& work) {
  const bool crowded = static_cast<std::size_t>(work.ranks) > work.cpus.size();
  std::vector<std::string> words = {in_path("mpirun").value(),
                                    "-n",
                                    std::to_string(work.ranks),
                                    "--oversubscribe",
                                    "--bind-to",
                                    "none",
                                    "--mca",
                                    "mpi_yield_when_idle",
                                    crowded ? "1" : "0"};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.push_back(beside_us("starling_peer_mpi").value());
  return words;
}

std::vector<double> run_peer(Contender contender, Work work) {
  if (contender == Contender::gloo) work.operation = Operation::allreduce;
  std::vector<std::string> words =
      contender == Contender::mpi ? mpi_command(work) : std::vector{beside_us("starling_peer_gloo").value()};
  const std::vector<std::string> arguments = to_arguments(work);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ProgramRun run = run_successfully(words, work.cpus, kLimit);
  std::istringstream numbers(run.out);
  std::vector<double> batches;
  for (double seconds = 0; numbers >> seconds;) batches.push_back(seconds);
  if (!numbers.eof() || batches.size() != static_cast<std::size_t>(work.batches))
    throw Error(fmt::format("{} did not print {} numbers", to_string(contender), work.batches));
  return batches;
}

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

std::string to_string(Contender contender) {
  constexpr std::array<const char*, kContenders> kNames = {
      "starling", "starling zero-copy", "ceiling", "zero-copy ceiling", "mpi", "gloo"};
  return kNames[static_cast<std::size_t>(contender)];
}

std::optional<std::string> missing(Contender contender) {
  if (contender == Contender::mpi && (!beside_us("starling_peer_mpi") || !in_path("mpirun")))
    return "no Open MPI to compare with; ./run bench installs it";
  if (contender == Contender::gloo && !beside_us("starling_peer_gloo"))
    return "no gloo to compare with; ./run bench installs it";
  return std::nullopt;
}

double seconds_per_operation(Contender contender, const Work& work) {
  const bool peer = contender == Contender::mpi || contender == Contender::gloo;
  return median(peer ? run_peer(contender, work) : run_own(contender, work)) / work.per_batch;
}

double idle_share(double sleep_seconds, const std::vector<int>& cpus) {
  Work work;
  work.cpus = cpus;
  const std::string job = launch::random_token();
  const auto by_rank = run_ranks(work.ranks, 1, kLimit, [&](int rank, const auto& /*meet*/) {
    Flock flock = join(job, work, rank);
    std::vector<float> x(250);
    flock.barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::duration<double>(sleep_seconds));
      flock.send(x, 0);
      return std::vector<double>{};
    }
    const double before = processor_seconds();
    const double seconds = seconds_of([&] { flock.recv(x, 1); });
    return std::vector{(processor_seconds() - before) / seconds};
  });
  return by_rank[0].at(0);
}

double stopped_share(double stop_seconds, const std::vector<int>& cpus) {
  Work work;
  work.ranks = 3;
  work.cpus = cpus;
  const std::string job = launch::random_token();
  const auto by_rank = run_ranks(work.ranks, 1, kLimit, [&](int rank, const auto& /*meet*/) {
    using Clock = std::chrono::steady_clock;
    Flock flock = join(job, work, rank);
    flock.set_schedule("complete");
    std::vector<float> x(250'000, 1.0F);
    Window window = flock.create_window(x, "bench");
    const auto pids = flock.allgather(std::vector<std::int64_t>{getpid()});
    const auto step_seconds = [&](double duration) {
      std::vector<double> steps;
      const auto start = Clock::now();
      for (auto now = start; now - start < std::chrono::duration<double>(duration);) {
        window.put();
        window.update();
        const auto then = Clock::now();
        steps.push_back(std::chrono::duration<double>(then - now).count());
        now = then;
      }
      return median(steps);
    };
    flock.barrier();
    if (rank > 0) {
      step_seconds(2 * stop_seconds);
      flock.barrier();
      return std::vector<double>{};
    }
    const double usual = step_seconds(0.9 * stop_seconds);
    const auto victim = static_cast<pid_t>(pids[2]);
    kill(victim, SIGSTOP);
    const double meanwhile = step_seconds(stop_seconds);
    kill(victim, SIGCONT);
    flock.barrier();
    return std::vector{meanwhile / usual};
  });
  return by_rank[0].at(0);
}

double start_up_seconds(int ranks) {
  return run_successfully({own_path(), "run", "-n", std::to_string(ranks), "--", "true"}, {}, kLimit).seconds;
}

bool single_copy_allowed() {
  static int secret = 0;
  const pid_t parent = getpid();
  const auto by_rank = run_ranks(1, 1, kLimit, [&](int /*rank*/, const auto& /*meet*/) {
    int copy = 0;
    const iovec here{&copy, sizeof copy};
    const iovec there{&secret, sizeof secret};
    const bool read = process_vm_readv(parent, &here, 1, &there, 1, 0) == sizeof copy;
    return std::vector{read ? 1.0 : 0.0};
  });
  return by_rank[0].at(0) == 1;
}

}  // namespace starling::bench
