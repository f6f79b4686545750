#include "starling/flock/pending.h"

#include <numeric>
#include <random>
#include <thread>

#include "flock/reference.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

class OrderTest : public FlockTest {};

enum class Kind {
  short_sum,
  weighted,
  gather,
  broadcast,
  scatter,
  letter,
  barrier,
  scheduled,
  long_sum,  // has two phases
};
constexpr int kKinds = 8;  // without long_sum, which is rarer

constexpr const char* kSchedule = "periodic(one-peer-exponential,h=3)";  // group means have two phases

/// One operation in flight, and its expected result.
class Task {
 public:
  Task(int number, Kind kind) : number_(number), kind_(kind) {}

  Kind kind() const { return kind_; }
  Pending& pending() { return pending_; }

  /// `step`: the number of scheduled operations before this one.
  void start(Flock& flock, Step step) {
    const std::string name = fmt::format("task {}", number_);
    const Rank n = flock.size();
    const Rank right = (flock.rank() + 1) % n;
    const Rank left = (flock.rank() + n - 1) % n;
    step_ = step;
    in_ = start_block<float>(flock.rank(), count(flock.rank()), round());
    out_ = in_;
    switch (kind_) {
      case Kind::short_sum:
      case Kind::long_sum:
        pending_ = flock.allreduce_nonblocking(in_, out_, Reduction::sum, name);
        return;
      case Kind::weighted: {
        Weighted weights{0.5, std::map<Rank, double>{{left, 0.25}}, std::map<Rank, double>{{right, 1.0}}};
        if (n == 1) weights = {0.5, std::map<Rank, double>(), std::map<Rank, double>()};
        pending_ = flock.neighbor_allreduce_nonblocking(in_, out_, weights, name);
        return;
      }
      case Kind::gather:
        pending_ = flock.allgather_nonblocking(in_, out_, name);
        return;
      case Kind::broadcast:
        pending_ = flock.broadcast_nonblocking(out_, number_ % n, name);
        return;
      case Kind::scatter:
        pending_ = flock.reduce_scatter_nonblocking(in_, out_, Reduction::max, name);
        return;
      case Kind::letter:
        if (n == 1) return;
        flock.send(in_, right, name);
        pending_ = flock.recv_nonblocking(out_, left, name);
        return;
      case Kind::barrier:
        pending_ = flock.barrier_nonblocking(name);
        return;
      case Kind::scheduled:
        pending_ = flock.neighbor_allreduce_nonblocking(in_, out_, name);
        return;
    }
  }

  void check(const Flock& flock) const {
    const Rank n = flock.size();
    const Rank left = (flock.rank() + n - 1) % n;
    std::vector<float> expected = in_;
    const auto of = [&](Rank rank) { return start_block<float>(rank, count(rank), round()); };
    switch (kind_) {
      case Kind::short_sum:
      case Kind::long_sum:
        expected = of(0);
        for (Rank r = 1; r < n; ++r)
          for (std::size_t i = 0; const float x : of(r)) expected[i++] += x;
        break;
      case Kind::weighted:
        for (std::size_t i = 0; const float x : of(left)) {
          expected[i] = n == 1 ? 0.5F * expected[i] : 0.5F * expected[i] + 0.25F * x;
          ++i;
        }
        break;
      case Kind::gather:
        expected.clear();
        for (Rank r = 0; r < n; ++r)
          for (const float x : of(r)) expected.push_back(x);
        break;
      case Kind::broadcast:
        expected = of(number_ % n);
        break;
      case Kind::scatter: {
        std::vector<float> most = of(0);
        for (Rank r = 1; r < n; ++r)
          for (std::size_t i = 0; const float x : of(r)) {
            most[i] = std::max(most[i], x);
            ++i;
          }
        const auto at = [&](Rank r) {
          return most.data() + most.size() * static_cast<std::size_t>(r) / static_cast<std::size_t>(n);
        };
        expected.assign(at(flock.rank()), at(flock.rank() + 1));
        break;
      }
      case Kind::letter:
        if (n > 1) expected = of(left);
        break;
      case Kind::barrier:
        break;
      case Kind::scheduled:
        require_step(*make_schedule(kSchedule, n), step_, flock.rank(), out_, in_.size(), round(),
                     "scheduled");
        return;
    }
    require(same_bits(out_, expected), fmt::format("task {} of kind {}", number_, static_cast<int>(kind_)));
  }

 private:
  std::uint64_t round() const { return static_cast<std::uint64_t>(number_) + 1; }
  std::size_t count(Rank rank) const {
    if (kind_ == Kind::long_sum) return 8500;  // above 32 KiB
    return static_cast<std::size_t>(number_ % 23 + (kind_ == Kind::gather ? rank : 0));
  }

  int number_;
  Kind kind_;
  Step step_ = 0;
  std::vector<float> in_;
  std::vector<float> out_;
  Pending pending_;
};

std::vector<Task> make_tasks(int number) {
  std::vector<Task> tasks;
  for (int k = 0; k < number; ++k)
    tasks.emplace_back(k, k % 25 == 24 ? Kind::long_sum : static_cast<Kind>(k % kKinds));
  return tasks;
}

std::vector<std::size_t> shuffled(std::size_t size, unsigned seed) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

// Starts the tasks in this rank's own order. Scheduled operations count steps, so they are started in one
// order on all ranks, at any positions among the others.
void start_all(Flock& flock, std::vector<Task>& tasks, unsigned seed) {
  flock.set_schedule(kSchedule);
  auto order = shuffled(tasks.size(), seed);
  std::vector<std::size_t> scheduled;
  for (std::size_t k = 0; k < tasks.size(); ++k)
    if (tasks[k].kind() == Kind::scheduled) scheduled.push_back(k);
  std::size_t next = 0;
  for (std::size_t& k : order)
    if (tasks[k].kind() == Kind::scheduled) k = scheduled[next++];
  Step step = 0;
  for (const std::size_t k : order) {
    tasks[k].start(flock, step);
    if (tasks[k].kind() == Kind::scheduled) ++step;
  }
}

TEST_P(OrderTest, StartedInOneRandomOrderAndWaitedForInAnother) {
  run([](Flock& flock) {
    auto tasks = make_tasks(flock.size() > 3 ? 1000 : 3000);
    const auto rank = static_cast<unsigned>(flock.rank());
    start_all(flock, tasks, rank + 1);
    for (const std::size_t k : shuffled(tasks.size(), rank + 100)) {
      tasks[k].pending().wait();
      tasks[k].check(flock);
    }
  });
}

// The k-th operation of a name matches the k-th of the others, also where some have two phases and overtake
// each other.
TEST_P(OrderTest, OperationsOfOneNameMatchInStartOrder) {
  run([](Flock& flock) {
    const std::string spec = flock.size() % 2 == 0 ? "hierarchical(one-peer-exponential,local=2)" : kSchedule;
    flock.set_schedule(spec);
    const SchedulePtr schedule = make_schedule(spec, flock.size());
    constexpr std::size_t kNumber = 60;
    std::vector<std::vector<float>> averages;
    std::vector<std::vector<std::int64_t>> sums;
    std::vector<Pending> pending;
    for (std::size_t k = 0; k < kNumber; ++k) {
      averages.push_back(start_block<float>(flock.rank(), 7, k));
      sums.emplace_back(k % 3 == 0 ? 5000 : 7, static_cast<std::int64_t>(k));
      pending.push_back(flock.neighbor_allreduce_nonblocking(averages[k], averages[k], "one name"));
      pending.push_back(flock.allreduce_nonblocking(sums[k], sums[k], Reduction::sum, "one name too"));
    }
    for (const std::size_t k : shuffled(pending.size(), static_cast<unsigned>(flock.rank()) + 400))
      pending[k].wait();
    for (std::size_t k = 0; k < kNumber; ++k) {
      require_step(*schedule, static_cast<Step>(k), flock.rank(), averages[k], 7, k, spec);
      for (const std::int64_t sum : sums[k])
        require(sum == static_cast<std::int64_t>(k) * flock.size(), fmt::format("sum {}", k));
    }
  });
}

TEST_P(OrderTest, PollingFinishesOperations) {
  run([](Flock& flock) {
    auto tasks = make_tasks(200);
    const auto rank = static_cast<unsigned>(flock.rank());
    start_all(flock, tasks, rank + 7);
    auto open = shuffled(tasks.size(), rank + 200);
    const auto until = std::chrono::steady_clock::now() + 30s;
    while (!open.empty()) {
      require(std::chrono::steady_clock::now() < until, "polling leads nowhere");
      std::erase_if(open, [&](std::size_t k) {
        if (!tasks[k].pending().ready()) return false;
        tasks[k].check(flock);  // ready() means that the result is there
        tasks[k].pending().wait();
        return true;
      });
    }
    flock.barrier();
  });
}

TEST_P(OrderTest, DroppingWaitsForTheResult) {
  run([](Flock& flock) {
    auto tasks = make_tasks(100);
    start_all(flock, tasks, static_cast<unsigned>(flock.rank()) + 3);
    for (const std::size_t k : shuffled(tasks.size(), static_cast<unsigned>(flock.rank()) + 300)) {
      { const Pending dropped = std::move(tasks[k].pending()); }
      tasks[k].check(flock);
    }
    // Assigning to a Pending waits for the operation it held.
    std::vector<std::int64_t> x = {flock.rank()};
    std::vector<std::int64_t> y = {1};
    Pending pending = flock.allreduce_nonblocking(x, x, Reduction::max, "x");
    pending = flock.allreduce_nonblocking(y, y, Reduction::sum, "y");
    require(x[0] == flock.size() - 1, "dropped before it had ended");
    pending.wait();
    require(y[0] == flock.size(), "the one that took its place");
  });
}

TEST_P(OrderTest, SeveralThreadsOfARankShareOneFlock) {
  run([](Flock& flock) {
    constexpr int kThreads = 4;
    std::vector<std::string> errors(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&flock, &error = errors[static_cast<std::size_t>(t)], t] {
        try {
          for (int k = 0; k < 60; ++k) {
            // Each thread starts its own operations, in the same order on all ranks; the threads run
            // independently.
            const auto kind = k % 10 == 9 ? Kind::long_sum : static_cast<Kind>(k % (kKinds - 1));
            Task task(t * 60 + k, kind);
            task.start(flock, 0);
            task.pending().wait();
            task.check(flock);
          }
        } catch (const std::exception& exception) {
          error = fmt::format("thread {}: {}", t, exception.what());
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) require(error.empty(), error);
  });
}

TEST_P(OrderTest, AWaitThatTimesOutCanBeContinued) {
  run([](Flock& flock) {
    std::vector<float> x(3);
    const std::vector<std::uint8_t> word;
    if (flock.size() == 1 || flock.rank() > 1) return;
    if (flock.rank() == 0) {
      Pending pending = flock.recv_nonblocking(x, 1, "late");
      require(!pending.wait_for(20ms), "nothing was sent yet");
      require(!pending.wait_for(0ns) && !pending.wait_for(-1s) && !pending.ready(), "nothing was sent yet");
      flock.send(word, 1, "go");
      require(pending.wait_for(20s), "a wait that was long enough");
      require(same_bits(x, start_block<float>(1, 3)), "value");
      require(pending.wait_for(0ns) && pending.ready(), "a finished operation stays finished");
      pending.wait();
    } else {
      std::vector<std::uint8_t> none;
      flock.recv(none, 0, "go");
      flock.send(start_block<float>(1, 3), 0, "late");
    }
  });
}

TEST_P(OrderTest, TimeSpentElsewhereIsNotWaiting) {
  run([](Flock& flock) {
    if (flock.size() != 2) return;
    std::vector<float> x(3);
    if (flock.rank() == 0) {
      flock.set_timeout(500ms);
      Pending pending = flock.recv_nonblocking(x, 1);
      require(!pending.ready(), "nothing was sent yet");
      std::this_thread::sleep_for(800ms);  // computes
      pending.wait();
    } else {
      std::this_thread::sleep_for(900ms);
      flock.send(x, 0);
    }
  });
}

TEST_P(OrderTest, AWaitMayHaveTheLongestDuration) {
  run([](Flock& flock) {
    if (flock.size() == 1 || flock.rank() > 1) return;
    std::vector<float> x(3);
    if (flock.rank() == 0) {
      Pending pending = flock.recv_nonblocking(x, 1);
      require(!pending.ready(), "nothing was sent yet");
      flock.send(x, 1, "go");
      require(pending.wait_for(std::chrono::nanoseconds::max()), "292 years were too short");
    } else {
      flock.recv(x, 0, "go");
      flock.send(x, 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, OrderTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);

}  // namespace
}  // namespace starling::flock
