#include "starling/flock/relay.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <queue>

#include "flock/deaths.h"
#include "flock/flock_fixture.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

// Number of hops from one rank to all others in a round of a schedule.
std::vector<Step> hops_from(const Schedule& schedule, Step round, Rank from) {
  std::vector<Step> hops(static_cast<std::size_t>(schedule.size()), -1);
  std::queue<Rank> open;
  open.push(from);
  hops[static_cast<std::size_t>(from)] = 0;
  while (!open.empty()) {
    const Rank rank = open.front();
    open.pop();
    for (const Source& source : schedule.exchange(round, rank).sources) {
      Step& there = hops[static_cast<std::size_t>(source.rank)];
      if (there >= 0) continue;
      there = hops[static_cast<std::size_t>(rank)] + 1;
      open.push(source.rank);
    }
  }
  return hops;
}

class RelayTest : public FlockTest {};

// Rank j's block at step t is t + 1 at position j and 0 elsewhere, so a sum shows which step's block of each
// rank it includes: that of max(0, hops - 1) steps ago, or none yet.
TEST_P(RelayTest, EveryRankIsSeenHopsMinusOneStepsLate) {
  for (const char* tree : {"chain", "star", "binary-tree", "k-tree(k=3)", "bfs-tree(of=exponential)"})
    run([tree](Flock& flock) {
      const auto n = static_cast<std::size_t>(flock.size());
      Relay relay = flock.relay(tree);
      const auto hops = hops_from(*make_schedule(tree, flock.size()), 0, flock.rank());
      for (Step step = 0; step < 20; ++step) {
        std::vector<double> x(n);
        x[static_cast<std::size_t>(flock.rank())] = static_cast<double>(step + 1);
        if (step % 3 == 2) {
          std::vector<double> out(n);
          relay.average_nonblocking(x, out).wait();
          x = out;
        } else {
          relay.average(x);
        }
        std::int64_t count = 0;
        std::vector<double> expected(n);
        for (std::size_t j = 0; j < n; ++j) {
          const Step then = step - std::max<Step>(0, hops[j] - 1);
          if (then < 0) continue;
          expected[j] = static_cast<double>(then + 1);
          ++count;
        }
        require(relay.contributors() == count, "contributors");
        for (std::size_t j = 0; j < n; ++j)
          require(std::abs(x[j] - expected[j] / static_cast<double>(count)) < 1e-12,
                  fmt::format("{} step {} of rank {}: {}", tree, step, j, x[j] * static_cast<double>(count)));
      }
    });
}

// With overlap, rank j's block is `hops` steps old. A rank whose block has not arrived counts as zeros, so
// the sum is divided by the number of all ranks.
TEST_P(RelayTest, OverlappedMessagesAreAStepLaterAndZerosStandIn) {
  for (const char* tree : {"chain", "star", "binary-tree"})
    run([tree](Flock& flock) {
      const auto n = static_cast<std::size_t>(flock.size());
      Relay relay = flock.relay(tree, "relay", {.missing = Missing::zero, .overlap = true});
      const auto hops = hops_from(*make_schedule(tree, flock.size()), 0, flock.rank());
      for (Step step = 0; step < 20; ++step) {
        std::vector<double> x(n);
        x[static_cast<std::size_t>(flock.rank())] = static_cast<double>(step + 1);
        relay.average(x);
        std::int64_t count = 0;
        for (std::size_t j = 0; j < n; ++j) {
          const Step then = step - hops[j];
          count += then >= 0 ? 1 : 0;
          const double expected = static_cast<double>(std::max<Step>(0, then + 1)) / static_cast<double>(n);
          require(std::abs(x[j] - expected) < 1e-12,
                  fmt::format("{} step {} of rank {}: {} instead of {}", tree, step, j, x[j], expected));
        }
        require(relay.contributors() == count, "contributors");
      }
    });
}

TEST_P(RelayTest, TwoTreesCarryHalfTheBlockEach) {
  for (const bool contiguous : {false, true})
    run([contiguous](Flock& flock) {
      const auto n = static_cast<std::size_t>(flock.size());
      Relay relay = flock.relay("double-binary-trees", "relay", {.contiguous = contiguous});
      const auto schedule = make_schedule("double-binary-trees", flock.size());
      const auto first = hops_from(*schedule, 0, flock.rank());
      const auto second = hops_from(*schedule, 1, flock.rank());
      // Each half has an element for each rank; one half is longer by one element.
      const auto place = [&](std::size_t half, std::size_t rank) {
        return contiguous ? half * n + rank : 2 * rank + half;
      };
      for (Step step = 0; step < 12; ++step) {
        std::vector<double> x(2 * n + 1);
        for (const std::size_t half : {0U, 1U})
          x[place(half, static_cast<std::size_t>(flock.rank()))] = static_cast<double>(step + 1);
        relay.average(x);
        for (const std::size_t half : {0U, 1U}) {
          const auto& hops = half == 0 || schedule->period() == 1 ? first : second;
          double count = 0;
          for (const Step away : hops) count += step >= std::max<Step>(0, away - 1) ? 1 : 0;
          for (std::size_t j = 0; j < n; ++j) {
            const Step then = step - std::max<Step>(0, hops[j] - 1);
            require(std::abs(x[place(half, j)] - static_cast<double>(std::max<Step>(0, then + 1)) / count) <
                        1e-12,
                    fmt::format("half {} step {}", half, step));
          }
        }
        require(x[2 * n] == 0, "the last element");
      }
    });
}

// The interleaved layout gives the bits that halves give if the block is sorted into even and odd elements
// before: for blocks longer than a slice of the cache, in every type, with every rule.
template <typename E>
void compare_layouts(Flock& flock, Missing rule) {
  constexpr std::size_t kHalf = 20'003;
  const std::string name = fmt::format("{} {}", sizeof(E), static_cast<int>(rule));
  Relay interleaved = flock.relay("double-binary-trees", name + " interleaved", {.missing = rule});
  Relay halves = flock.relay("double-binary-trees", name + " halves", {.missing = rule, .contiguous = true});
  for (unsigned step = 0; step < 5; ++step) {
    std::vector<E> x(2 * kHalf);
    std::vector<E> y(2 * kHalf);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto value = static_cast<E>(0.1 * static_cast<double>((i * 7 + step * 31) % 1009) + flock.rank());
      x[i] = value;
      y[i % 2 * kHalf + i / 2] = value;
    }
    const std::vector<E> before = x;
    std::vector<E> out(x.size());
    if (step % 2 == 0) {
      interleaved.average(x);
    } else {
      interleaved.average_nonblocking(x, out).wait();
      require(x == before, "the input");
      x = out;
    }
    halves.average(y);
    require(interleaved.contributors() == halves.contributors(), "contributors");
    std::vector<E> sorted(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) sorted[i % 2 * kHalf + i / 2] = x[i];
    require(sorted == y, fmt::format("{}: step {}", name, step));
  }
}

TEST_P(RelayTest, EvensAndOddsHaveTheBitsOfHalves) {
  if (GetParam().size == 1) GTEST_SKIP() << "one rank has one tree";
  run([](Flock& flock) {
    for (const Missing rule : {Missing::counts, Missing::own, Missing::reference}) {
      compare_layouts<float>(flock, rule);
      compare_layouts<double>(flock, rule);
    }
  });
}

// Long messages are written with non-temporal stores: a long block gives the bits of its parts.
TEST_P(RelayTest, LongBlocksHaveTheBitsOfTheirParts) {
  if (GetParam().size > 3) GTEST_SKIP() << "takes too much memory";
  run([](Flock& flock) {
    constexpr std::size_t kElements = (std::size_t{4} << 20) / sizeof(float) + 1001;
    constexpr std::size_t kPart = kElements / 3;
    Relay whole = flock.relay("chain", "whole");
    Relay part = flock.relay("chain", "part");
    for (unsigned step = 0; step < 3; ++step) {
      std::vector<float> x(kElements);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = 0.1F * static_cast<float>((i * 7 + step * 31) % 1009) + static_cast<float>(flock.rank());
      std::vector<float> y(x.begin() + kPart, x.begin() + 2 * kPart);
      whole.average(x);
      part.average(y);
      require(std::equal(y.begin(), y.end(), x.begin() + kPart), fmt::format("step {}", step));
    }
  });
}

TEST_P(RelayTest, BlocksDividedDifferentlyAreAnError) {
  if (GetParam().size == 1) GTEST_SKIP() << "no rank to disagree with";
  run([](Flock& flock) {
    Relay relay = flock.relay("double-binary-trees", "relay", {.contiguous = flock.rank() == 0});
    const auto schedule = make_schedule("double-binary-trees", flock.size());
    bool disagrees = flock.rank() == 0;
    for (const Step round : {0, 1})
      for (const Source& source : schedule->exchange(round, flock.rank()).sources)
        disagrees = disagrees || source.rank == 0;
    std::vector<double> x(6, 1.0);
    if (disagrees) {
      const std::string text = message_of<Mismatch>([&] { relay.average(x); });
      require(text.find("divides blocks among them differently") != std::string::npos, text);
    } else {
      relay.average(x);
    }
  });
}

TEST_P(RelayTest, MissingBlocksAreFilledByTheChosenRule) {
  run([](Flock& flock) {
    const double n = flock.size();
    const auto hops = hops_from(*make_schedule("chain", flock.size()), 0, flock.rank());
    const double first = 10.0 * flock.rank();
    const double second = first + 100;  // all ranks add as much
    for (const Missing rule : {Missing::counts, Missing::own, Missing::reference}) {
      Relay relay = flock.relay("chain", fmt::format("rule {}", static_cast<int>(rule)), {.missing = rule});
      for (const int step : {1, 2}) {
        double there = 0;
        double sum = 0;
        for (std::size_t j = 0; j < hops.size(); ++j) {
          if (hops[j] > step) continue;  // has not come this far yet
          there += 1;
          const bool second_block = step == 2 && hops[j] <= 1;  // the others' are a step old
          sum += 10.0 * static_cast<double>(j) + (second_block ? 100 : 0);
        }
        std::vector<double> x = {step == 1 ? first : second};
        // `own` fills with the new block, `reference` with the first one.
        const double filling = rule == Missing::own ? x[0] : first;
        const double expected = rule == Missing::counts ? sum / there : (sum + (n - there) * filling) / n;
        relay.average(x);
        require(std::abs(x[0] - expected) < 1e-12,
                fmt::format("step {}: {} instead of {}", step, x[0], expected));
      }
    }
  });
}

TEST_P(RelayTest, EqualBlocksStayEqualWhateverIsDropped) {
  const auto ends = GetParam().launcher->run(GetParam().size, [](const std::shared_ptr<Fabric>& fabric) {
    Faults faults;
    faults.seed = 11;
    faults.drop = 0.1;
    Flock flock(make_faulty(fabric, faults));
    flock.set_timeout(20s);
    Relay relay = flock.relay("binary-tree", "relay", {.patience = 5ms});
    std::vector<double> x = {3.0};
    for (Step step = 0; step < 60; ++step) {
      relay.average(x);
      require(std::abs(x[0] - 3) < 1e-9, "an average of equal blocks");
      require(relay.contributors() >= 1 && relay.contributors() <= flock.size(), "contributors");
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

TEST_P(RelayTest, LostMessagesAreNotWaitedFor) {
  for (const bool overlap : {false, true}) {
    const auto ends =
        GetParam().launcher->run(GetParam().size, [overlap](const std::shared_ptr<Fabric>& fabric) {
          Flock flock(make_faulty(fabric, {.seed = 11, .lose = 0.2}));
          flock.set_timeout(20s);
          Relay relay = flock.relay("binary-tree", "relay", {.overlap = overlap});
          std::vector<double> x = {3.0};
          bool missed = false;
          for (Step step = 0; step < 200; ++step) {
            relay.average(x);
            require(std::abs(x[0] - 3) < 1e-9, "an average of equal blocks");
            missed = missed || (step > 20 && relay.contributors() < flock.size());
          }
          require(missed || flock.size() == 1, "nothing was lost");
        });
    for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  }
}

// A new relay that is given the saved state of another one continues bit for bit in another job, even if
// messages of the first steps were still in flight.
TEST_P(RelayTest, ContinuesFromASavedState) {
  const auto n = static_cast<std::size_t>(GetParam().size);
  if (GetParam().launcher->processes) GTEST_SKIP() << "the saved states are in this process";
  for (const char* tree : {"chain", "binary-tree", "double-binary-trees"})
    for (const RelayOptions& options :
         {RelayOptions{Missing::counts}, RelayOptions{Missing::own}, RelayOptions{Missing::reference},
          RelayOptions{.missing = Missing::counts, .overlap = true},
          RelayOptions{.missing = Missing::zero, .overlap = true}})
      for (const Step saved : {0, 1, 2, 6}) {
        std::vector<Relay::Memory> memories(n);
        std::vector<std::vector<double>> values(n);
        std::vector<std::vector<double>> straight(n);
        std::vector<std::vector<double>> resumed(n);
        const auto steps = [](Relay& relay, std::vector<double>& x, Step from, Step to) {
          for (Step step = from; step < to; ++step) {
            for (std::size_t i = 0; i < x.size(); ++i)
              x[i] = x[i] * 0.9 + 0.1 * static_cast<double>(i * 3 + static_cast<std::size_t>(step));
            relay.average(x);
          }
        };
        run([&](Flock& flock) {
          const auto r = static_cast<std::size_t>(flock.rank());
          Relay relay = flock.relay(tree, "relay", options);
          std::vector<double> x(7, static_cast<double>(r) + 0.1);
          relay.set_reference(const_buffer_of(x));
          steps(relay, x, 0, saved);
          memories[r] = relay.memory();
          values[r] = x;
          steps(relay, x, saved, saved + 4);
          straight[r] = x;
        });
        run([&](Flock& flock) {
          const auto r = static_cast<std::size_t>(flock.rank());
          Relay relay = flock.relay(tree, "relay", options);
          relay.set_reference(const_buffer_of(std::vector<double>(7, -1e6)));
          relay.remember(memories[r]);
          require(relay.memory().filled == memories[r].filled &&
                      relay.memory().reference == memories[r].reference,
                  "the restored state");
          steps(relay, values[r], saved, saved + 4);
          resumed[r] = values[r];
        });
        EXPECT_EQ(straight, resumed) << tree << " from step " << saved;
      }
}

TEST_P(RelayTest, OnlyTrees) {
  run([](Flock& flock) {
    if (flock.size() < 3) return;
    require(
        message_of<InvalidArgument>([&] { flock.relay("ring"); }).find("has a cycle") != std::string::npos,
        "ring");
    require(message_of<InvalidArgument>([&] { flock.relay("od-equidyn"); }).find("needs one tree") !=
                std::string::npos,
            "changing");
    require(message_of<InvalidArgument>([&] {
              flock.relay("chain", "x", {.missing = Missing::reference, .patience = 1ms});
            }).find("reference") != std::string::npos,
            "reference");
    std::vector<std::int32_t> whole(3);
    require(message_of<InvalidArgument>([&] { flock.relay("chain").average(whole); }).find("int32") !=
                std::string::npos,
            "integers");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RelayTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);
INSTANTIATE_TEST_SUITE_P(Sixteen, RelayTest, testing::Values(Launch{&launchers()[0], 16}), launch_name);

TEST(RelayDeathTest, TheSurvivorsBuildAnotherTree) {
  for (const char* tree : {"chain", "star", "binary-tree"}) {
    DeathRun run(5, {.kill_at_post = {{1, 37}}}, 0);
    run.run([tree](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.on_peer_failure(OnPeerFailure::reweight);
      flock.set_timeout(std::chrono::seconds(20));
      Relay relay = flock.relay(tree);
      for (Step step = 0; step < 200; ++step) {
        std::vector<double> x(5);
        x[static_cast<std::size_t>(flock.rank())] = 1;
        relay.average(x);
        double sum = 0;
        for (const double value : x) sum += value;
        require(std::abs(sum - 1) < 1e-12, "not an average");
        if (step < 190) continue;
        require(relay.contributors() == 4, fmt::format("{} contributors", relay.contributors()));
        for (std::size_t j = 0; j < 5; ++j) require(std::abs(x[j] - (j == 1 ? 0 : 0.25)) < 1e-12, "weights");
      }
    });
    for (const Rank rank : {0, 2, 3, 4})
      EXPECT_TRUE(run.end(rank).ok) << tree << ": " << run.end(rank).message;
  }
}

// The blocks grow by one in each step, so a stale reference would show.
TEST(RelayDeathTest, TheReferenceIsOfTheLastStart) {
  DeathRun run(5, {.kill_at_post = {{4, 150}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    Relay relay = flock.relay("chain", "relay", {.missing = Missing::reference});
    const std::vector<double> start = {-100};
    relay.set_reference(const_buffer_of(start));
    bool filled = false;
    for (Step step = 0; step < 400; ++step) {
      std::vector<double> x = {static_cast<double>(step)};
      relay.average(x);
      filled = filled || (step == 0 && x[0] < -10);
      require(step < 5 || x[0] > static_cast<double>(step) - 5, fmt::format("{} at step {}", x[0], step));
    }
    require(filled, "missing blocks were not filled with the reference");
    require(flock.view().members.size() == 4, "no rank died");
  });
  for (const Rank rank : {0, 1, 2, 3}) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

}  // namespace
}  // namespace starling::flock
