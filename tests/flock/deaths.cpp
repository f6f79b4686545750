#include "flock/deaths.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <initializer_list>
#include <numeric>
#include <signal.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

#include "base/eventually.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/flock/flock.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

constexpr std::size_t kMostRows = 2000;
constexpr std::size_t kMostLinks = 12;
constexpr std::size_t kMostResults = 20'000;
constexpr std::size_t kMostEpochs = 12;

struct StoredRow {
  Step step;
  std::uint32_t epoch;
  double self_weight;
  std::size_t sources;
  std::pair<Rank, double> source[kMostLinks];
  std::size_t destinations;
  Rank destination[kMostLinks];
};

// A child process sends these signals to this process, 150 ms apart.
void signal_later(unsigned microseconds, std::initializer_list<int> signals) {
  const pid_t victim = getpid();
  if (fork() != 0) return;
  usleep(microseconds);
  for (const int signal : signals) {
    kill(victim, signal);
    usleep(150'000);
  }
  _exit(0);
}

}  // namespace

unsigned soak_runs() {
  const char* text = std::getenv("STARLING_SOAK");
  return text == nullptr ? 6 : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

struct DeathRun::Log {
  std::atomic<Rank> joined;  // number of ranks that have joined; rank 0's log counts for all
  std::atomic<std::size_t> rows;
  StoredRow row[kMostRows];
  std::atomic<std::size_t> results;
  double result[kMostResults];
  std::size_t members[kMostEpochs];
  Rank member[kMostEpochs][64];

  void add(const StepRecord& record) {
    StoredRow& stored = row[rows];
    stored.step = record.step;
    stored.epoch = record.epoch;
    stored.self_weight = record.exchange.self_weight;
    stored.sources = record.exchange.sources.size();
    for (std::size_t i = 0; i < stored.sources; ++i)
      stored.source[i] = {record.exchange.sources[i].rank, record.exchange.sources[i].weight};
    stored.destinations = record.exchange.destinations.size();
    for (std::size_t i = 0; i < stored.destinations; ++i)
      stored.destination[i] = record.exchange.destinations[i].rank;
    ++rows;
  }
  void add(double value) {
    result[results] = value;
    ++results;
  }
  void add(const View& view) {
    members[view.epoch] = view.members.size();
    std::copy(view.members.begin(), view.members.end(), member[view.epoch]);
  }
};

double DeathRun::Row::sum() const {
  return std::accumulate(sources.begin(), sources.end(), self_weight,
                         [](double total, const auto& source) { return total + source.second; });
}

DeathRun::DeathRun(Rank size, Mishaps mishaps, Step steps)
    : size_(size), mishaps_(std::move(mishaps)), steps_(steps) {
  void* memory = mmap(nullptr, sizeof(Log) * static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  logs_ = static_cast<Log*>(memory);
}

DeathRun::~DeathRun() {
  munmap(logs_, sizeof(Log) * static_cast<std::size_t>(size_));
}

DeathRun::Log& DeathRun::log(Rank rank) const {
  return logs_[rank];
}

void DeathRun::run(const RankBody& body, const std::vector<Launcher>& all) {
  const auto processes =
      std::find_if(all.begin(), all.end(), [](const Launcher& one) { return one.processes; });
  shares_ = processes->shares;
  Faults faults;
  for (const auto& [rank, post] : mishaps_.kill_at_post) faults.kills.emplace_back(rank, post);
  ends_ = processes->run(size_, [&](const std::shared_ptr<Fabric>& fabric) {
    const Rank rank = fabric->rank();
    // A network join fails unless all ranks take part, so ranks die only after it.
    ++log(0).joined;
    if (!shares_ && !eventually([&] { return log(0).joined >= size_; }))
      throw Error("not all ranks have joined");
    if (const auto moment = mishaps_.kill_after.find(rank); moment != mishaps_.kill_after.end())
      signal_later(moment->second, {SIGKILL});
    if (const auto moment = mishaps_.stop_after.find(rank); moment != mishaps_.stop_after.end())
      signal_later(moment->second, {SIGSTOP, SIGCONT});
    body(make_faulty(fabric, faults));
  });
}

void DeathRun::neighbor_averages(const std::string& spec) {
  run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    Log& mine = log(flock.rank());
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_schedule(spec);
    flock.set_timeout(std::chrono::seconds(30));
    flock.observe([&](const StepRecord& record) { mine.add(record); });
    std::vector<double> x = {static_cast<double>(flock.rank())};
    for (Step step = 0; step < steps_; ++step) {
      flock.neighbor_allreduce(x);
      mine.add(flock.view());
    }
    mine.add(x[0]);
  });
}

void DeathRun::neighbor_averages_that_raise(const std::string& spec) {
  run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_schedule(spec);
    std::vector<double> x = {static_cast<double>(flock.rank())};
    for (Step step = 0; step < steps_; ++step) flock.neighbor_allreduce(x);
  });
}

void DeathRun::collectives() {
  run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    Log& mine = log(flock.rank());
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(30));
    for (Step step = 0; step < steps_; ++step) {
      const double value = flock.rank() + 100.0 * static_cast<double>(step);
      // Each rank contributes a power of two, so the sum names its contributors.
      std::vector<std::int64_t> bits = {std::int64_t{1} << flock.rank()};
      flock.allreduce(bits);
      mine.add(static_cast<double>(bits[0]));
      // Long enough to be reduced in slices.
      std::vector<double> large(6000, value);
      flock.average(large);
      for (const double element : large)
        if (element != large[0]) throw Error("an average of different contributors");
      mine.add(large[0]);
      const auto ranks = flock.allgather(std::vector<Rank>{flock.rank()});
      for (const Rank rank : ranks) mine.add(rank);
      std::vector<double> word = {value};
      // The same on all ranks, whereas each rank learns of a new view at its own moment
      const Rank root = ranks.front();
      try {
        flock.broadcast(word, root);
        mine.add(word[0] - root);
      } catch (const PeerLost& lost) {
        if (lost.peer() != root) throw;
        mine.add(-1);  // the root has died, so every rank throws
      }
      flock.barrier();
    }
  });
}

std::vector<Rank> DeathRun::survivors() const {
  std::vector<Rank> alive;
  for (Rank rank = 0; rank < size_; ++rank)
    if (end(rank).signal == 0) alive.push_back(rank);
  return alive;
}

std::vector<Rank> DeathRun::members_after(std::uint32_t epoch) const {
  for (Rank rank = 0; rank < size_; ++rank)
    if (log(rank).members[epoch] > 0)
      return {log(rank).member[epoch], log(rank).member[epoch] + log(rank).members[epoch]};
  throw std::runtime_error("no rank has logged this view");
}

std::vector<DeathRun::Row> DeathRun::rows(Rank rank) const {
  std::vector<Row> all;
  for (std::size_t k = 0; k < log(rank).rows; ++k) {
    const StoredRow& stored = log(rank).row[k];
    Row row{stored.step, stored.epoch, stored.self_weight, {}, {}};
    row.sources.insert(stored.source, stored.source + stored.sources);
    row.destinations.insert(stored.destination, stored.destination + stored.destinations);
    all.push_back(std::move(row));
  }
  return all;
}

double DeathRun::result(Rank rank) const {
  return log(rank).result[0];
}

std::vector<double> DeathRun::results(Rank rank) const {
  return {log(rank).result, log(rank).result + log(rank).results};
}

std::string DeathRun::problem_with_steps(const std::string& spec) const {
  std::map<Rank, std::vector<Row>> all;
  for (const Rank rank : survivors()) {
    if (!end(rank).ok) return fmt::format("rank {}: {}", rank, end(rank).message);
    all[rank] = rows(rank);
    if (all[rank].size() != static_cast<std::size_t>(steps_))
      return fmt::format("rank {} is short of steps", rank);
  }
  for (std::size_t k = 0; k < static_cast<std::size_t>(steps_); ++k) {
    const std::uint32_t epoch = all.begin()->second[k].epoch;
    SchedulePtr live;
    if (epoch > 0)
      live = make_schedule(fmt::format("live({},members=[{}])", spec, fmt::join(members_after(epoch), ",")),
                           size_);
    for (const auto& [rank, their_rows] : all) {
      const Row& row = their_rows[k];
      const std::string where = fmt::format("step {}, rank {}: ", k, rank);
      if (row.step != static_cast<Step>(k) || row.epoch != epoch) return where + "another step or view";
      if (std::abs(row.sum() - 1) > 1e-12) return where + fmt::format("the row sums to {}", row.sum());
      for (const auto& [source, weight] : row.sources)
        if (all.count(source) > 0 && all.at(source)[k].destinations.count(rank) == 0)
          return where + fmt::format("received from {}, which did not send to it", source);
      for (const Rank to : row.destinations)
        if (all.count(to) > 0 && all.at(to)[k].sources.count(rank) == 0)
          return where + fmt::format("sent to {}, which did not receive from it", to);
      if (!live) continue;
      for (const Source& source : live->exchange(static_cast<Step>(k), rank).sources)
        if (all.count(source.rank) > 0 &&
            (row.sources.count(source.rank) == 0 || row.sources.at(source.rank) != source.weight))
          return where + "does not follow the schedule of its view";
    }
  }
  return "";
}

std::string DeathRun::problem_with_results() const {
  const std::vector<Rank> alive = survivors();
  for (const Rank rank : alive) {
    if (!end(rank).ok) return fmt::format("rank {}: {}", rank, end(rank).message);
    if (results(rank) != results(alive[0])) return fmt::format("ranks {} and {} differ", alive[0], rank);
  }
  return "";
}

}  // namespace starling::flock
