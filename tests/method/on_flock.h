#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include "flock/flock_fixture.h"
#include "method/problem.h"
#include "starling/method/drive.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"

// Runs methods on real flocks and keeps every rank's every model.

namespace starling {

/// Memory that forked ranks share with the test.
template <typename T>
class SharedNumbers {
 public:
  explicit SharedNumbers(std::size_t count) : bytes_((count + 1) * sizeof(T)) {
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw Error("mmap");
    data_ = static_cast<T*>(memory);
  }
  ~SharedNumbers() { munmap(data_, bytes_); }
  SharedNumbers(const SharedNumbers&) = delete;
  SharedNumbers& operator=(const SharedNumbers&) = delete;
  T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

/// x cut into parts of uneven lengths, each a block of its own.
inline Driver drive_in_parts(const Flock& flock, MutableBlock x, MutableBlock gradient,
                             const DriverOptions& options, std::size_t parts) {
  const MethodPtr method = make_method(options.method);
  const Optimizer optimizer = parse_optimizer(options.optimizer);
  const auto hypers = std::make_shared<std::vector<Hyper>>(1, optimizer.hyper);
  const SchedulePtr schedule = schedule_for(flock, *method, options.topology, options.seed);
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = x.count * part * part / (parts * parts);
    const std::size_t count = x.count * (part + 1) * (part + 1) / (parts * parts) - begin;
    const std::size_t offset = begin * size_of(x.dtype);
    const MutableBlock own{x.dtype, static_cast<std::byte*>(x.data) + offset, count};
    const MutableBlock along{x.dtype, static_cast<std::byte*>(gradient.data) + offset, count};
    const std::string name = fmt::format("part/{}", part);
    blocks.push_back(
        make_block(name, own, along, *method, optimizer, hypers,
                   make_flock_channel(flock, name, {schedule, options.message, method->relay_rule()})));
  }
  return {method, std::move(blocks)};
}

/// A run of a method on a problem.
struct MethodRun {
  Problem problem;
  DriverOptions options;
  Step steps = 40;
  std::size_t parts = 0;  // 0: drive()
  const Launcher* launcher = &launchers()[0];
  std::function<bool(Rank, Step)> skips = [](Rank, Step) { return false; };
};

/// Every model of every rank and step.
template <typename T>
struct Trajectory {
  Problem problem;
  Step steps = 0;
  std::vector<T> values;

  std::vector<T> at(Rank rank, Step step) const {
    const auto begin = values.begin() + (rank * steps + step) * static_cast<std::ptrdiff_t>(problem.count);
    return std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(problem.count));
  }
  std::vector<T> last(Rank rank) const { return at(rank, steps - 1); }
  /// Of the ranks' last models, or of their starts.
  Vector mean(bool at_start) const {
    Vector sum(problem.count);
    for (Rank rank = 0; rank < problem.n; ++rank) {
      const auto x = at_start ? problem.start_of<T>(rank) : last(rank);
      for (std::size_t k = 0; k < x.size(); ++k) sum[k] += static_cast<Number>(x[k]) / problem.n;
    }
    return sum;
  }
};

template <typename T>
Trajectory<T> trajectory(const MethodRun& run) {
  const Problem& problem = run.problem;
  const auto total = static_cast<std::size_t>(problem.n * run.steps) * problem.count;
  const SharedNumbers<T> shared(total);
  const auto ends = run.launcher->run(problem.n, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(30s);
    auto x = problem.start_of<T>(flock.rank());
    std::vector<T> gradient(problem.count);
    const MutableBlock own = mutable_block(x);
    const MutableBlock along = mutable_block(gradient);
    Driver driver = run.parts == 0 ? drive(flock, own, along, run.options)
                                   : drive_in_parts(flock, own, along, run.options, run.parts);
    T* out = shared.data() + static_cast<std::size_t>(flock.rank() * run.steps) * problem.count;
    for (Step step = 0; step < run.steps; ++step) {
      driver.begin();
      problem.gradient(flock.rank(), x.data(), gradient.data());
      if (run.skips(flock.rank(), step)) {
        std::fill(gradient.begin(), gradient.end(), std::numeric_limits<T>::quiet_NaN());
        for (std::size_t b = 0; b < driver.size(); ++b) driver[b].skipped = true;
      }
      driver.finish();
      for (std::size_t b = 0; b < driver.size(); ++b) {
        const MutableBlock model = driver.method().model(driver[b]);
        std::copy_n(static_cast<const T*>(model.data), model.count, out);
        out += model.count;
      }
    }
  });
  for (std::size_t r = 0; r < ends.size(); ++r)
    if (!ends[r].ok) throw Error(fmt::format("rank {}: {}", r, ends[r].message));
  return {problem, run.steps, std::vector<T>(shared.data(), shared.data() + total)};
}

}  // namespace starling
