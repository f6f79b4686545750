// Covers reduce_all, reduce_rounds, staged_reduce and native_reduce of starling/flock.
#include <bit>
#include <cmath>
#include <deque>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "flock/deaths.h"
#include "flock/flock_fixture.h"
#include "starling/flock/reduce_rounds.h"

namespace starling::flock {
namespace {

constexpr AllreduceAlgorithm kByRounds[] = {AllreduceAlgorithm::ring, AllreduceAlgorithm::doubling,
                                            AllreduceAlgorithm::halving, AllreduceAlgorithm::tree};

// Simulates the rounds of all members, with queues between them. A member whose messages have not arrived
// waits.
std::vector<std::vector<double>> play(AllreduceAlgorithm way, std::size_t n, std::size_t count) {
  std::vector<std::vector<double>> values(n, std::vector<double>(count));
  std::vector<std::vector<ReduceRound>> rounds(n);
  for (std::size_t i = 0; i < n; ++i) {
    rounds[i] = reduce_rounds(way, i, n, count);
    for (std::size_t k = 0; k < count; ++k) values[i][k] = static_cast<double>((i + 1) * (k + 1));
  }
  std::map<std::pair<std::size_t, std::size_t>, std::deque<std::vector<double>>> on_the_way;
  std::vector<std::size_t> at(n, 0);
  std::vector<bool> sent(n, false);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < n; ++i) {
      if (at[i] == rounds[i].size()) continue;
      const ReduceRound& round = rounds[i][at[i]];
      if (!sent[i]) {
        for (const auto& send : round.sends)
          on_the_way[{i, send.peer}].emplace_back(values[i].begin() + static_cast<std::ptrdiff_t>(send.begin),
                                                  values[i].begin() + static_cast<std::ptrdiff_t>(send.end));
        sent[i] = moved = true;
      }
      bool all = true;
      for (const auto& receive : round.receives) all = all && !on_the_way[{receive.peer, i}].empty();
      if (!all) continue;
      for (const auto& receive : round.receives) {
        const auto message = on_the_way[{receive.peer, i}].front();
        on_the_way[{receive.peer, i}].pop_front();
        EXPECT_EQ(message.size(), receive.end - receive.begin);
        for (std::size_t k = 0; k < message.size(); ++k) {
          double& value = values[i][receive.begin + k];
          value = receive.add ? value + message[k] : message[k];
        }
      }
      ++at[i];
      sent[i] = false;
      moved = true;
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    EXPECT_EQ(at[i], rounds[i].size()) << name(way) << ": member " << i << " hangs";
  for (const auto& [pair, queue] : on_the_way) EXPECT_TRUE(queue.empty()) << "a message was not received";
  return values;
}

TEST(ReduceRoundsTest, EveryRankGetsTheSumForEveryNumberOfMembers) {
  for (const AllreduceAlgorithm way : kByRounds)
    for (std::size_t n = 1; n <= 17; ++n)
      for (const std::size_t count : {0U, 1U, 3U, 16U, 41U}) {
        const auto values = play(way, n, count);
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t k = 0; k < count; ++k)
            ASSERT_EQ(values[i][k], static_cast<double>(n * (n + 1) / 2 * (k + 1)))
                << name(way) << " n " << n << " count " << count << " member " << i;
      }
}

// Averages weighted by these counts give every member's block the same weight.
TEST(ReduceRoundsTest, ContributorsAreCounted) {
  for (const AllreduceAlgorithm way : kByRounds)
    for (std::size_t n = 2; n <= 17; ++n) {
      std::vector<std::vector<ReduceRound>> rounds;
      for (std::size_t i = 0; i < n; ++i) rounds.push_back(reduce_rounds(way, i, n, 64));
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<std::size_t> members(64, 1);  // in each of this member's elements
        for (const ReduceRound& round : rounds[i])
          for (const auto& receive : round.receives)
            for (std::size_t k = receive.begin; k < receive.end && receive.add; ++k) {
              ASSERT_EQ(receive.mine, members[k]) << name(way) << " n " << n << " member " << i;
              members[k] += receive.theirs;
              ASSERT_LE(members[k], n) << name(way) << " n " << n << " member " << i;
            }
        const bool whole = way == AllreduceAlgorithm::doubling ? i < std::bit_floor(n)
                                                               : way == AllreduceAlgorithm::tree && i == 0;
        if (whole) {
          ASSERT_EQ(members[0], n) << name(way) << " n " << n << " member " << i;
        }
      }
    }
}

TEST(ReduceRoundsTest, BytesMatchTheFormulas) {
  const auto sent = [](AllreduceAlgorithm way, std::size_t n, std::size_t count) {
    std::size_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      std::size_t total = 0;
      for (const ReduceRound& round : reduce_rounds(way, i, n, count))
        for (const auto& send : round.sends) total += send.end - send.begin;
      most = std::max(most, total);
    }
    return most;
  };
  EXPECT_EQ(sent(AllreduceAlgorithm::ring, 8, 800), 1400U);      // 2 (n - 1) / n
  EXPECT_EQ(sent(AllreduceAlgorithm::halving, 8, 800), 1400U);   // the same, in 6 rounds
  EXPECT_EQ(sent(AllreduceAlgorithm::doubling, 8, 800), 2400U);  // log2 n
  EXPECT_EQ(reduce_rounds(AllreduceAlgorithm::halving, 3, 8, 800).size(), 6U);
  EXPECT_EQ(reduce_rounds(AllreduceAlgorithm::doubling, 3, 8, 800).size(), 3U);
}

TEST(ReduceRoundsTest, NamesAreReadBack) {
  for (const AllreduceAlgorithm way : kByRounds) EXPECT_EQ(parse_allreduce_algorithm(name(way)), way);
  EXPECT_EQ(message_of<InvalidArgument>([] { parse_allreduce_algorithm("star"); }),
            "unknown all-reduce algorithm 'star'; valid are direct, ring, doubling, halving, tree, native");
}

class AllreduceAlgorithmsTest : public FlockTest {};

TEST_P(AllreduceAlgorithmsTest, EveryAlgorithmReducesEveryTypeToTheSameBits) {
  for (const AllreduceAlgorithm way : kByRounds)
    run([way](Flock& flock) {
      flock.set_allreduce(name(way));
      const Rank n = flock.size();
      for (const std::size_t count : {0U, 1U, 1000U, 40'001U}) {
        std::vector<float> x(count);
        std::vector<double> sum(count);
        for (std::size_t i = 0; i < count; ++i) {
          x[i] = std::sin(1.0F + static_cast<float>(flock.rank()) + static_cast<float>(i));
          for (Rank r = 0; r < n; ++r)
            sum[i] += std::sin(1.0F + static_cast<float>(r) + static_cast<float>(i));
        }
        flock.average(x);
        for (std::size_t i = 0; i < count; ++i) require(std::abs(x[i] - sum[i] / n) < 1e-6, "average");
        const auto all = flock.allgather(x);
        for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == x[i % count], "not the same bits");
      }
      std::vector<Half> halves(100, Half(60000.0F));
      flock.average(halves);
      for (const Half value : halves) require(value == Half(60000.0F), "an average of large halves");
      std::vector<std::int32_t> numbers = {flock.rank(), -flock.rank(), 7};
      flock.allreduce(numbers, Reduction::max);
      require(numbers == std::vector<std::int32_t>({n - 1, 0, 7}), "max");
      std::vector<std::vector<double>> group = {{1.0 * flock.rank()}, {1, 1}};
      flock.allreduce_group(group);
      require(group[0][0] == n * (n - 1) / 2.0 && group[1][1] == n, "group");
      flock.barrier();
    });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, AllreduceAlgorithmsTest,
                         testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)), launch_name);

template <typename E>
void check_native_sums(Flock& flock) {
  std::vector<E> x(300'001);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<E>(static_cast<int>(i % 100) + flock.rank());
  const std::vector<E> mine = x;
  flock.allreduce(x);
  const int n = flock.size();
  for (std::size_t i = 0; i < x.size(); ++i)
    require(x[i] == static_cast<E>(n * static_cast<int>(i % 100) + n * (n - 1) / 2), "sum");
  x = mine;
  flock.allreduce(x, Reduction::max);
  require(x[99] == static_cast<E>(99 + n - 1), "max");
}

class NativeReduceTest : public FlockTest {};

// The blocks are long enough for the engine, if the fabric has one; otherwise the direct algorithm runs.
TEST_P(NativeReduceTest, TheEngineOfAFabricGivesTheSameSums) {
  run([](Flock& flock) {
    flock.set_allreduce("native");
    const int n = flock.size();
    check_native_sums<float>(flock);
    check_native_sums<double>(flock);
    check_native_sums<std::int32_t>(flock);
    check_native_sums<std::int64_t>(flock);
    std::vector<Half> halves(600'000, Half(60000.0F));
    flock.average(halves);
    require(halves.back() == Half(60000.0F), "an average of large halves");
    std::vector<std::vector<double>> group = {
        std::vector<double>(100'000, flock.rank()), {1, 1}, std::vector<double>(70'000, 2)};
    flock.allreduce_group(group, Reduction::average);
    require(group[0].back() == (n - 1) / 2.0 && group[1][1] == 1 && group[2][0] == 2, "group");
  });
}

TEST_P(NativeReduceTest, CallsTheEngineInOneOrderWhateverOrderTheRanksUse) {
  run([](Flock& flock) {
    flock.set_allreduce("native");
    const int n = flock.size();
    Flock members = flock.split(flock.rank() % 2);
    members.set_allreduce("native");
    std::vector<std::vector<float>> blocks;
    for (int k = 0; k < 4; ++k) blocks.emplace_back(300'000, static_cast<float>(k + flock.rank()));
    std::vector<Pending> pending;
    for (int k = 0; k < 4; ++k) {
      const auto which = static_cast<std::size_t>((k + flock.rank()) % 4);
      pending.push_back(flock.allreduce_nonblocking(blocks[which], blocks[which], Reduction::sum,
                                                    fmt::format("block {}", which)));
    }
    // By the time the other ranks wait, for the last operation first, everything from rank 0 has arrived.
    if (flock.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    (flock.rank() == 0 ? pending.front() : pending.back()).wait();
    std::vector<float> part(300'000, 1);
    members.allreduce(part);
    require(part[0] == static_cast<float>(members.size()), "a part of the flock");
    for (Pending& one : pending) one.wait();
    for (int k = 0; k < 4; ++k)
      require(blocks[static_cast<std::size_t>(k)].back() == static_cast<float>(n * k + n * (n - 1) / 2),
              "block");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, NativeReduceTest, testing::ValuesIn(launches({2, 5}, false)), launch_name);

TEST(AllreduceAlgorithmsFailureTest, SurvivorsAgreeOrAllRaise) {
  for (const AllreduceAlgorithm way : kByRounds)
    for (const bool reweight : {true, false})
      for (const std::uint64_t post : {3U, 20U, 41U}) {
        DeathRun run(5, {.kill_at_post = {{2, post}}}, 0);
        run.run([&](const std::shared_ptr<Fabric>& fabric) {
          Flock flock(fabric);
          if (reweight) flock.on_peer_failure(OnPeerFailure::reweight);
          flock.set_timeout(std::chrono::seconds(20));
          flock.set_allreduce(name(way));
          for (int k = 0; k < 30; ++k) {
            std::vector<double> x(1000, 1.0);
            try {
              flock.allreduce(x);
            } catch (const PeerLost& lost) {
              // Names rank 2; or, for a rank that completed this all-reduce, a rank that has left because of
              // the failure.
              require(!reweight && !fabric->alive(lost.peer()), lost.what());
              return;
            }
            require(x[0] == 4 || x[0] == 5, "contributors");
            for (const double value : x) require(value == x[0], "torn");
          }
          require(reweight, "the failure was not noticed");
        });
        for (const Rank rank : {0, 1, 3, 4})
          EXPECT_TRUE(run.end(rank).ok) << name(way) << " reweight " << reweight << " post " << post
                                        << ": rank " << rank << ": " << run.end(rank).message;
      }
}

}  // namespace
}  // namespace starling::flock
