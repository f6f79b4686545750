#include "starling/flock/neighbor_exchanger.h"

#include <cmath>
#include <thread>

#include "flock/deaths.h"
#include "flock/reference.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

Pieces pieces_in(std::vector<Buffer> blocks) {
  return pieces_of(blocks);
}
template <typename E>
Pieces piece_of(std::vector<E>& x) {
  return pieces_in({buffer_of(x)});
}

/// Combines an exchange's terms as the flock's own operations do.
template <typename E>
std::vector<E> combined(const PendingExchange& exchange, std::size_t count, std::size_t piece = 0) {
  std::vector<E> out(count);
  combine(dtype_of<E>, out.data(), exchange.terms(piece), count);
  return out;
}

class NeighborExchangerTest : public FlockTest {};

// On a fabric that loses messages, each piece keeps its invariant (IfLost) in every step, whichever message
// is lost.
TEST_P(NeighborExchangerTest, LostMessagesKeepEachPiecesInvariant) {
  const auto ends = GetParam().launcher->run(GetParam().size, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(make_faulty(fabric, {.seed = 5, .lose = 0.3}));
    flock.set_timeout(20s);
    require(flock.loses_messages(), "the fabric loses messages");
    for (const std::string spec : {"ring", "complete", "one-peer-exponential"}) {
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      NeighborExchanger rounds(flock, schedule, "lossy rounds of " + spec);
      for (Step step = 0; step < 30; ++step) {
        std::vector<double> average = {1}, sum = {1.0 + flock.rank()}, pair = {1.0 + flock.rank()};
        Pieces pieces = pieces_in({buffer_of(average), buffer_of(sum), buffer_of(pair)});
        pieces[1].if_lost = IfLost::returned;
        pieces[2].if_lost = IfLost::mutual;
        std::vector<double> after;
        {
          PendingExchange exchange = rounds.start(pieces);
          exchange.wait();
          for (std::size_t i = 0; i < 3; ++i) after.push_back(combined<double>(exchange, 1, i)[0]);
        }
        require(std::abs(after[0] - 1) < 1e-12, spec + ": not an average");
        flock.allreduce(after, Reduction::sum);
        const double all = flock.size() * (flock.size() + 1) / 2.0;
        require(std::abs(after[1] - all) < 1e-9, spec + ": the sum has changed");
        // In one direction only, this schedule does not keep the sum of a `mutual` piece.
        if (spec != "one-peer-exponential")
          require(std::abs(after[2] - all) < 1e-9, spec + ": a pair was left out at one end");
      }
    }
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

TEST_P(NeighborExchangerTest, TermsGiveTheBitsOfTheFlocksOwnAverages) {
  run([](Flock& flock) {
    std::vector<std::string> specs = {"ring",
                                      "exponential",
                                      "one-peer-exponential",
                                      "star",
                                      "base(k=2)",
                                      "chain",
                                      "od-equidyn(seed=2)",
                                      "complete",
                                      "periodic(ring,h=2)"};
    if (flock.size() % 2 == 0) specs.emplace_back("hierarchical(one-peer-exponential,local=2)");
    for (const std::string& spec : specs) {
      flock.set_schedule(spec);
      NeighborExchanger rounds(flock, make_schedule(spec, flock.size()), "rounds of " + spec);
      for (Step step = 0; step < 6; ++step) {
        require(rounds.step() == step, "step");
        const auto round = static_cast<std::uint64_t>(step);
        for_floating_types([&]<typename E>(std::type_identity<E>) {
          if (dtype_of<E> != (step % 2 == 0 ? DType::float32 : DType::bfloat16)) return;
          const auto start = start_block<E>(flock.rank(), 1003, round);
          auto x = start;
          PendingExchange exchange = rounds.start(piece_of(x));
          exchange.wait();
          require(exchange.ready(), "ready after wait");
          auto expected = start;
          flock.neighbor_allreduce(expected);
          require(same_bits(combined<E>(exchange, x.size()), expected), spec + ": not the same bits");
          require(same_bits(x, start), spec + ": the block was written to");
        });
      }
    }
  });
}

TEST_P(NeighborExchangerTest, BlocksInOutgoingMemoryAreSentFromThere) {
  run([](Flock& flock) {
    for (const std::string spec : {"ring", "complete"}) {
      NeighborExchanger rounds(flock, make_schedule(spec, flock.size()), "outgoing " + spec);
      const auto start = start_block<float>(flock.rank(), 77);
      Outgoing memory = flock.outgoing_bytes(77 * sizeof(float));
      std::memcpy(memory.bytes().data(), start.data(), 77 * sizeof(float));
      const Pieces pieces = {{{DType::float32, memory.bytes().data(), 77}, {}, 0}};
      PendingExchange exchange = rounds.start(pieces, std::move(memory));
      exchange.wait();
      require_shares(combined<float>(exchange, 77),
                     shares_of(*make_schedule(spec, flock.size()), 0, flock.rank()), 77, 0, 0, spec);
    }
  });
}

TEST_P(NeighborExchangerTest, PiecesOfDifferentTypesShareAMessage) {
  run([](Flock& flock) {
    for (const std::string spec : {"exponential", "periodic(ring,h=2)"}) {
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      NeighborExchanger rounds(flock, schedule, "pieces " + spec);
      for (Step step = 0; step < 4; ++step) {
        const auto round = static_cast<std::uint64_t>(step);
        auto x = start_block<float>(flock.rank(), 5, round);
        auto p = start_block<double>(flock.rank(), 1, round);
        PendingExchange exchange = rounds.start(pieces_in({buffer_of(x), buffer_of(p)}));
        exchange.wait();
        require_step(*schedule, step, flock.rank(), combined<float>(exchange, 5), 5, round, spec);
        require_step(*schedule, step, flock.rank(), combined<double>(exchange, 1, 1), 1, round, spec);
      }
    }
  });
}

TEST_P(NeighborExchangerTest, SeveralAdvanceAtTheirOwnPace) {
  run([](Flock& flock) {
    const SchedulePtr schedule = make_schedule("one-peer-exponential", flock.size());
    NeighborExchanger slow(flock, schedule, "slow");
    NeighborExchanger fast(flock, schedule, "fast");
    for (Step turn = 0; turn < 5; ++turn) {
      // Starts the two exchanges in one order and waits in the other.
      const auto round = static_cast<std::uint64_t>(turn);
      auto x = start_block<double>(flock.rank(), 9, round);
      PendingExchange late = slow.start(piece_of(x));
      for (Step k = 0; k < 3; ++k) {
        auto y = start_block<double>(flock.rank(), 11, round + 100);
        PendingExchange exchange = fast.start(piece_of(y));
        exchange.wait();
        require_step(*schedule, 3 * turn + k, flock.rank(), combined<double>(exchange, 11), 11, round + 100,
                     "fast");
      }
      late.wait();
      require_step(*schedule, turn, flock.rank(), combined<double>(late, 9), 9, round, "slow");
    }
    require(slow.step() == 5 && fast.step() == 15, "steps");
  });
}

TEST_P(NeighborExchangerTest, SetStepContinuesFromThere) {
  run([](Flock& flock) {
    const SchedulePtr schedule = make_schedule("one-peer-exponential", flock.size());
    NeighborExchanger rounds(flock, schedule);
    Step expected = 0;
    for (const Step set : {-1, 1, 5, 2}) {
      if (set >= 0) rounds.set_step(expected = set);
      const Exchange next = rounds.next();
      const Exchange planned = schedule->exchange(expected, flock.rank());
      require(next.sources.size() == planned.sources.size(), "next()");
      for (std::size_t i = 0; i < next.sources.size(); ++i)
        require(next.sources[i].rank == planned.sources[i].rank, "the sources of next()");
      auto x = start_block<float>(flock.rank(), 3);
      PendingExchange exchange = rounds.start(piece_of(x));
      exchange.wait();
      require_step(*schedule, expected++, flock.rank(), combined<float>(exchange, 3), 3, 0, "set_step");
    }
  });
}

// Every rank drops a different exchange, in a different way; the next round is still right.
TEST_P(NeighborExchangerTest, ADroppedExchangeDoesNotDisturbTheNext) {
  run([](Flock& flock) {
    std::vector<std::string> specs = {"exponential", "complete", "periodic(one-peer-exponential,h=3)"};
    // With this schedule, other ranks wait for the message that follows the group's mean.
    if (flock.size() % 2 == 0) specs.emplace_back("hierarchical(ring,local=2)");
    for (const std::string& spec : specs) {
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      NeighborExchanger rounds(flock, schedule, "dropped " + spec);
      for (Step step = 0; step < 24; ++step) {
        const auto round = static_cast<std::uint64_t>(step);
        auto x = start_block<float>(flock.rank(), 501, round);
        PendingExchange exchange = rounds.start(piece_of(x));
        if ((step + flock.rank()) % 3 == 0) {
          if (step % 2 == 0) exchange.ready();
          exchange = {};
          continue;
        }
        exchange.wait();
        require_step(*schedule, step, flock.rank(), combined<float>(exchange, 501), 501, round, spec);
      }
    }
  });
}

TEST_P(NeighborExchangerTest, AMovedExchangeIsStillWaitedFor) {
  run([](Flock& flock) {
    const SchedulePtr schedule = make_schedule("ring", flock.size());
    NeighborExchanger rounds(flock, schedule);
    require(!PendingExchange(), "nothing was started");
    auto x = start_block<float>(flock.rank(), 3);
    PendingExchange first = rounds.start(piece_of(x));
    PendingExchange second = std::move(first);
    PendingExchange third;
    third = std::move(second);
    third.wait();
    require_step(*schedule, 0, flock.rank(), combined<float>(third, 3), 3, 0, "moved");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, NeighborExchangerTest,
                         testing::ValuesIn(launches({1, 2, 3, 4, 5, 8}, false)), launch_name);

class TwoBlockTest : public FlockTest {};

TEST_P(TwoBlockTest, CecaIsExactAfterEachPeriod) {
  run([](Flock& flock) {
    std::vector<std::string> specs = {"ceca", "ceca(k=2)", "ceca(k=3)"};
    if (flock.size() % 2 == 0) specs.emplace_back("ceca-1p");
    for (const std::string& spec : specs) {
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      NeighborExchanger rounds(flock, schedule, "two blocks " + spec);
      require(rounds.mixing() == Mixing::two_block && rounds.schedule() == schedule, "schedule");
      for (std::uint64_t period = 0; period < 3; ++period) {
        auto a = start_block<double>(flock.rank(), 6, period);
        std::vector<double> b(6, 1e300);  // a new period ignores the old b
        for (Step k = 0; k < schedule->period(); ++k) {
          PendingExchange exchange;
          if (period % 2 == 0) {
            exchange = rounds.start(pieces_in({buffer_of(a), buffer_of(b)}));
          } else {
            Outgoing memory = flock.outgoing_bytes(12 * sizeof(double));
            auto* both = reinterpret_cast<double*>(memory.bytes().data());
            std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), both));
            exchange = rounds.start(pieces_in({{DType::float64, both, 6}, {DType::float64, both + 6, 6}}),
                                    std::move(memory));
          }
          exchange.wait();
          auto next_a = combined<double>(exchange, 6, 0);
          b = combined<double>(exchange, 6, 1);
          a = std::move(next_a);
        }
        Shares everybody;
        for (Rank rank = 0; rank < flock.size(); ++rank) everybody.emplace_back(rank, 1.0 / flock.size());
        require_shares(a, everybody, 6, period, 3, spec);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, TwoBlockTest, testing::ValuesIn([] {
                           std::vector<Launch> all;
                           for (Rank n = 1; n <= 9; ++n) all.push_back({&launchers()[0], n});
                           for (const Rank n : {3, 6}) all.push_back({&launchers()[1], n});
                           return all;
                         }()),
                         launch_name);

TEST(NeighborExchangerErrorTest, AScheduleForAnotherFlockIsRefused) {
  const auto ends = launchers()[0].run(3, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    require(message_of<InvalidArgument>([&] {
              NeighborExchanger(flock, make_schedule("ring", 4));
            }).find("is for 4 ranks, this flock has 3") != std::string::npos,
            "message");
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

// Weights still sum to one when a source has died, and the survivors reach consensus.
TEST(NeighborExchangerFailureTest, TheSurvivorsContinueWithWeightsThatSumToOne) {
  for (const char* spec : {"exponential", "one-peer-exponential", "complete", "periodic(ring,h=4)"}) {
    DeathRun run(4, {.kill_at_post = {{2, 31}}}, 0);
    run.run([spec](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.on_peer_failure(OnPeerFailure::reweight);
      flock.set_timeout(std::chrono::seconds(20));
      NeighborExchanger rounds(flock, make_schedule(spec, 4));
      std::vector<double> x(3, 1.0 * flock.rank());
      std::uint32_t epoch = 0;
      for (Step step = 0; step < 200; ++step) {
        PendingExchange exchange = rounds.start(piece_of(x));
        exchange.wait();
        require(exchange.epoch() >= epoch, "views go forward");
        epoch = exchange.epoch();
        double sum = 0;
        for (const Term& term : exchange.terms()) sum += term.weight;
        require(std::abs(sum - 1) < 1e-12, "weights");
        x = combined<double>(exchange, 3);
      }
      require(epoch == 1, "the view has changed");
      const auto everybody = flock.allgather(std::vector{x[0]});
      require(everybody.size() == 3, "survivors");
      for (const double other : everybody) require(std::abs(other - x[0]) < 1e-9, "no agreement");
    });
    for (const Rank rank : {0, 1, 3}) EXPECT_TRUE(run.end(rank).ok) << spec << ": " << run.end(rank).message;
  }
}

// The period restarts with a new view, so that it is exact among the survivors.
TEST(NeighborExchangerFailureTest, CecaRestartsItsPeriod) {
  DeathRun run(5, {.kill_at_post = {{1, 8}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    NeighborExchanger rounds(flock, make_schedule("ceca", 5));
    std::vector<double> a(2, std::exp(1.0 * flock.rank()));
    std::vector<double> b(2);
    Step in_view = 0;
    for (Step step = 0; step < 60; ++step) {
      PendingExchange exchange = rounds.start(pieces_in({buffer_of(a), buffer_of(b)}));
      exchange.wait();
      const auto next = combined<double>(exchange, 2, 0);
      b = combined<double>(exchange, 2, 1);
      a = next;
      if (exchange.epoch() == 0) {
        // Do not reach consensus yet
        a.assign(2, std::exp(1.0 * flock.rank() + 0.1 * static_cast<double>(step)));
        continue;
      }
      if (++in_view % 2 != 0) continue;  // ceca of four takes two rounds
      const auto everybody = flock.allgather(a, "check");
      for (const double other : everybody) require(std::abs(other - a[0]) < 1e-9 * a[0], "not exact");
    }
    require(in_view > 10, "no other view");
    rounds.set_step(0);  // a step before the one at which the period restarted
    a.assign(2, std::exp(1.0 * flock.rank()));
    for (int step = 0; step < 2; ++step) {
      PendingExchange exchange = rounds.start(pieces_in({buffer_of(a), buffer_of(b)}));
      exchange.wait();
      const auto next = combined<double>(exchange, 2, 0);
      b = combined<double>(exchange, 2, 1);
      a = next;
    }
    for (const double other : flock.allgather(a, "last check"))
      require(std::abs(other - a[0]) < 1e-9 * a[0], "not exact after set_step");
  });
  for (const Rank rank : {0, 2, 3, 4}) EXPECT_TRUE(run.end(rank).ok) << run.end(rank).message;
}

TEST(NeighborExchangerFailureTest, WithoutReweightingReceiversFromTheDeadRankThrow) {
  DeathRun run(3, {.kill_at_post = {{2, 20}}}, 0);
  run.run([](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(std::chrono::seconds(20));
    NeighborExchanger rounds(flock, make_schedule("ring", 3), "ring of three");
    std::vector<float> x(3);
    for (Step step = 0; step < 1000; ++step) rounds.start(piece_of(x)).wait();
  });
  for (const Rank rank : {0, 1})
    EXPECT_NE(run.end(rank).message.find("lost: ring of three"), std::string::npos) << run.end(rank).message;
}

}  // namespace
}  // namespace starling::flock
