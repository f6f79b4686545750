// Covers starling/flock/admission.cpp: Flock::admit().
#include <atomic>
#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <numeric>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "base/eventually.h"
#include "flock/flock_fixture.h"
#include "starling/topology/registry.h"

// Admission of newcomers. A test numbers the members first; STARLING_TEST_FABRIC=c10d or hybrid.
namespace starling::flock {
namespace {

/// A number in memory that the test's processes share.
class Shared {
 public:
  Shared()
      : value_(new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0)) {}
  ~Shared() { munmap(value_, sizeof(*value_)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  std::atomic<int>& operator*() const { return *value_; }
  void await(int least) const {
    require(eventually([&] { return *value_ >= least; }), "a shared number does not grow");
  }

 private:
  std::atomic<int>* value_;
};

void nothing(Rank) {}

class AdmissionTest : public FlockTest {
 protected:
  static std::vector<RankEnd> ends_of(Rank members, Rank newcomers, const FlockBody& body,
                                      const std::function<void(Rank)>& before = nothing) {
    return GetParam().launcher->run_with_newcomers(members, newcomers, before,
                                                   [body](const std::shared_ptr<Fabric>& fabric) {
                                                     Flock flock(fabric);
                                                     flock.set_timeout(30s);
                                                     flock.on_peer_failure(OnPeerFailure::reweight);
                                                     body(flock);
                                                   });
  }
  static void expect_good(const std::vector<RankEnd>& ends) {
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "process " << r << ": " << ends[r].message << " signal " << ends[r].signal;
  }
};

/// Behavior that hybrid fabrics inherit from their network: over a hybrid, only `./run conformance` runs
/// these tests.
class NetworkAdmissionTest : public AdmissionTest {};
Rank ranks_in_name() {
  return launchers().back().name == "hybrid_processes" ? 4 : 3;
}

// Runs steps until the flock has `size` ranks. A newcomer joins a flock that already has that size.
void step_until(
    Flock& flock, Rank size, const std::function<void(int)>& step = [](int) {}) {
  std::vector<double> x = {1};
  for (int k = 0; flock.size() != size || (flock.newcomers() == 0); ++k) {
    require(k < 20'000, fmt::format("{} ranks, not {}", flock.size(), size));
    step(k);
    flock.neighbor_allreduce(x);
    require(x[0] == 1, "rows sum to one");
    flock = flock.admit();
    std::this_thread::sleep_for(1ms);
  }
}

// Requires that all ranks are present, in order, and that operations work.
void require_whole(Flock& flock, Rank size) {
  require(flock.size() == size && flock.view().epoch == 0,
          fmt::format("a flock of {} in view {}", flock.size(), flock.view().epoch));
  std::vector<Rank> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  require(flock.allgather(std::vector<std::int32_t>{flock.rank()}) == all, "the ranks");
  std::vector<double> x = {1.0 * flock.rank()};
  for (int k = 0; k < 60; ++k) flock.neighbor_allreduce(x);
  require(std::abs(x[0] - 0.5 * (size - 1)) < 1e-9, fmt::format("agreed on {}", x[0]));
  flock.barrier();
}

TEST_P(AdmissionTest, ANewcomerIsTheLastRank) {
  expect_good(ends_of(2, 1, [](Flock& flock) {
    const bool later = flock.newcomers() > 0;
    const Rank before = flock.rank();
    flock.set_schedule("ring");
    if (!later) step_until(flock, 3);
    require(flock.entered() == later && flock.newcomers() == 1, "the newcomers");
    require(flock.rank() == before, "members keep their order");
    require(flock.schedule()->name() == "ring" && flock.schedule()->size() == 3 && flock.step() == 0,
            "the schedule");
    require(flock.on_peer_failure() == OnPeerFailure::reweight && flock.timeout() == 30s, "settings");
    require_whole(flock, 3);
  }));
}

TEST_P(NetworkAdmissionTest, NewcomersJoinOneAfterAnother) {
  Shared size;
  expect_good(ends_of(
      2, 2,
      [&](Flock& flock) {
        flock.set_schedule("one-peer-exponential");
        for (Rank wanted = flock.size() == 2 ? 3 : flock.size() + 1; wanted <= 4; ++wanted) {
          while (flock.size() < wanted) flock = flock.admit();
          *size = flock.size();
        }
        require_whole(flock, 4);
      },
      [&](Rank number) { number == 2 ? void() : size.await(3); }));
}

TEST_P(AdmissionTest, TwoNewcomersReplaceOneDeadRank) {
  Shared outside;
  const auto ends = ends_of(
      3, 2,
      [&](Flock& flock) {
        const bool later = flock.newcomers() > 0;
        flock.set_schedule("exponential");
        if (!later) {
          const Rank before = flock.rank();
          std::vector<double> x = {1};
          for (int k = 0; k < 20; ++k) {
            if (k == 10 && before == 1) raise(SIGKILL);
            flock.neighbor_allreduce(x);
          }
          *outside = 1;
          std::this_thread::sleep_for(100ms);  // both newcomers wait
          step_until(flock, 4);
          require(flock.rank() == (before == 2 ? 1 : before), "the survivors close up");
        }
        require_whole(flock, 4);
      },
      [&](Rank) { outside.await(1); });
  EXPECT_EQ(ends[1].signal, SIGKILL);
  for (const std::size_t r : {0, 2, 3, 4})
    EXPECT_TRUE(ends[r].ok) << "process " << r << ": " << ends[r].message;
}

// A newcomer that dies while it waits does not delay the members for long.
TEST_P(NetworkAdmissionTest, ANewcomerThatDiesWhileItWaitsIsIgnored) {
  Shared outside;
  const auto ends = ends_of(
      2, 2,
      [&](Flock& flock) {
        if (flock.newcomers() == 0) {
          outside.await(1);
          std::this_thread::sleep_for(250ms);  // it has asked to join, and died
          require(flock.admit().size() == 2, "no newcomer is left");
          *outside = 2;
          step_until(flock, 3);
        }
        require_whole(flock, 3);
      },
      [&](Rank number) {
        if (number == 3) return outside.await(2);
        *outside = 1;
        std::thread([] {
          std::this_thread::sleep_for(150ms);
          raise(SIGKILL);
        }).detach();
      });
  EXPECT_EQ(ends[2].signal, SIGKILL);
  for (const std::size_t r : {0, 1, 3}) EXPECT_TRUE(ends[r].ok) << "process " << r << ": " << ends[r].message;
}

// The schedule does not support three ranks, so the newcomer keeps waiting.
TEST_P(NetworkAdmissionTest, NewcomersWaitWhileNoScheduleFits) {
  const auto ends = ends_of(
      2, 1,
      [&](Flock& flock) {
        flock.set_schedule("one-peer-hypercube");  // does not support three ranks
        const auto until = std::chrono::steady_clock::now() + 300ms;
        for (std::vector<std::int32_t> more = {1}; more[0] == 1;) {
          require(flock.admit().size() == 2, "size");
          more[0] = std::chrono::steady_clock::now() < until ? 1 : 0;
          flock.broadcast(more, 0);
        }
        require_whole(flock, 2);
      },
      [](Rank) { ualarm(600'000, 0); });
  EXPECT_TRUE(ends[0].ok && ends[1].ok) << ends[0].message << ends[1].message;
  EXPECT_EQ(ends[2].signal, SIGALRM);
}

TEST_P(AdmissionTest, WithoutNewcomersNothingChanges) {
  expect_good(ends_of(3, 0, [](Flock& flock) {
    flock.set_schedule("one-peer-exponential");
    std::vector<double> x = {1.0 / (1 + flock.rank())};
    std::vector<double> y = x;
    for (int k = 0; k < 7; ++k) flock.neighbor_allreduce(x);
    flock.set_schedule("one-peer-exponential");
    for (int k = 0; k < 7; ++k) {
      flock = flock.admit();
      flock.neighbor_allreduce(y);
    }
    require(x == y && flock.step() == 7 && flock.newcomers() == 0, "the same bits");
    Flock part = flock.group({flock.rank()});
    require(message_of<InvalidArgument>([&] { part.admit(); }).find("the whole flock of 3 ranks") !=
                std::string::npos,
            "a sub-flock");
  }));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AdmissionTest);
INSTANTIATE_TEST_SUITE_P(Newcomers, AdmissionTest, testing::ValuesIn(launches_with_newcomers(3)),
                         launch_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NetworkAdmissionTest);
INSTANTIATE_TEST_SUITE_P(Newcomers, NetworkAdmissionTest,
                         testing::ValuesIn(launches_with_newcomers(ranks_in_name())), launch_name);

// Longer tests, which only `./run conformance` runs.
class LongAdmissionTest : public AdmissionTest {};

// The new group is not formed, the old one continues, and the next attempt succeeds.
TEST_P(LongAdmissionTest, AMemberDiesDuringAdmission) {
  const auto ends = ends_of(3, 1, [](Flock& flock) {
    if (flock.entered()) {
      flock.set_schedule("ring");
    } else {
      const Rank before = flock.rank();
      while (flock.newcomers() == 0)
        flock = flock.admit([&](Rank size) {
          if (before == 1) raise(SIGKILL);
          return make_schedule("ring", size);
        });
    }
    require_whole(flock, 3);
  });
  EXPECT_EQ(ends[1].signal, SIGKILL);
  for (const std::size_t r : {0, 2, 3}) EXPECT_TRUE(ends[r].ok) << "process " << r << ": " << ends[r].message;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongAdmissionTest);
INSTANTIATE_TEST_SUITE_P(Newcomers, LongAdmissionTest, testing::ValuesIn(launches_with_newcomers(4)),
                         launch_name);

TEST(Admission, NeedsAFabricThatAdmitsNewcomers) {
  launchers().front().run(1, [](const std::shared_ptr<Fabric>& fabric) {
    if (fabric->admission() != nullptr) return;
    const std::string text = message_of<InvalidArgument>([&] { Flock(fabric).admit(); });
    EXPECT_THAT(text, testing::HasSubstr("c10d and hybrid(c10d)"));
  });
}

}  // namespace
}  // namespace starling::flock
