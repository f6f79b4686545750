#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include "flock/flock_fixture.h"
#include "method/problem.h"
#include "starling/method/drive.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"

// Runs methods on real flocks and keeps every model of every rank.

namespace starling::method {

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

/// The start of part i when `count` elements are cut into `parts` parts of uneven lengths.
inline std::size_t cut(std::size_t count, std::size_t i, std::size_t parts) {
  return count * i * i / (parts * parts);
}

/// Divides x into parameters of uneven lengths, in `parts` blocks of several parameters each.
inline Driver drive_in_parts(const Flock& flock, Buffer x, Buffer gradient, const DriverOptions& options,
                             std::size_t parts, std::size_t parameters = 0) {
  if (parameters == 0) parameters = parts;
  const MethodPtr method = make_method(options.method);
  const Optimizer optimizer = parse_optimizer(options.optimizer);
  const auto hypers = std::make_shared<std::vector<Hyper>>(1, optimizer.hyper);
  const SchedulePtr schedule = schedule_for(flock, *method, options.topology, options.seed);
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = parameters * part / parts;
    const std::size_t last = parameters * (part + 1) / parts;
    const std::size_t begin = cut(x.count, first, parameters);
    const std::size_t count = cut(x.count, last, parameters) - begin;
    std::vector<Segment> segments;
    std::vector<std::size_t> ends;
    for (std::size_t p = first; p < last; ++p) {
      const std::size_t from = cut(x.count, p, parameters);
      segments.push_back({from - begin, cut(x.count, p + 1, parameters) - from, 0, true});
      ends.push_back(segments.back().begin + segments.back().count);
    }
    const Buffer own = x.part(begin, count);
    const Buffer along = gradient.part(begin, count);
    UpdatePtr update = method->make_update(own, segments.size(), hypers);
    if (!update) update = optimizer.make(own, segments.size(), hypers);
    const std::string name = fmt::format("part/{}", part);
    ChannelOptions channel{schedule, options.message, method->relay_rule(), ends};
    channel.one_sided = method->needs().one_sided;
    blocks.push_back(std::make_unique<Block>(name, own, along, std::move(segments), std::move(update),
                                             make_flock_channel(flock, name, channel)));
    blocks.back()->hypers = hypers;
  }
  return {method, std::move(blocks)};
}

/// A run of a method on a problem.
struct MethodRun {
  Problem problem;
  DriverOptions options;
  Step steps = 40;
  std::size_t parts = 0;       // 0: drive()
  std::size_t parameters = 0;  // 0: as many as parts
  const Launcher* launcher = &launchers()[0];
  bool in_turns =
      false;  // ranks end a step one after another: asynchronous ones, too, do the same every time
  std::function<bool(Rank, Step)> skips = [](Rank, Step) { return false; };
};

/// The models of every rank after every step.
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
  /// Restricted to some elements, as if of a smaller problem.
  Trajectory part(std::size_t first, std::size_t count) const {
    Trajectory some{problem, steps, {}};
    some.problem.first += first;
    some.problem.count = count;
    for (std::size_t model = 0; model < values.size() / problem.count; ++model) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(model * problem.count + first);
      some.values.insert(some.values.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    return some;
  }
  /// The mean of the ranks' last models, or of their starts.
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
    const Buffer own = buffer_of(x);
    const Buffer along = buffer_of(gradient);
    Driver driver = run.parts == 0
                        ? drive(flock, own, along, run.options)
                        : drive_in_parts(flock, own, along, run.options, run.parts, run.parameters);
    T* out = shared.data() + static_cast<std::size_t>(flock.rank() * run.steps) * problem.count;
    for (Step step = 0; step < run.steps; ++step) {
      driver.begin();
      problem.gradient(flock.rank(), x.data(), gradient.data());
      if (run.skips(flock.rank(), step)) {
        std::fill(gradient.begin(), gradient.end(), std::numeric_limits<T>::quiet_NaN());
        for (std::size_t b = 0; b < driver.size(); ++b) driver[b].skipped = true;
      }
      if (run.in_turns) {
        for (Rank turn = 0; turn < problem.n; ++turn) {
          flock.barrier();
          if (turn == flock.rank()) driver.finish();
        }
        flock.barrier();
      } else {
        driver.finish();
      }
      for (std::size_t b = 0; b < driver.size(); ++b) {
        const Buffer model = driver.method().model(driver[b]);
        std::copy_n(model.template host<T>(), model.count, out);
        out += model.count;
      }
    }
    if (run.in_turns) driver.settle();
  });
  for (std::size_t r = 0; r < ends.size(); ++r)
    if (!ends[r].ok) throw Error(fmt::format("rank {}: {}", r, ends[r].message));
  return {problem, run.steps, std::vector<T>(shared.data(), shared.data() + total)};
}

}  // namespace starling::method
