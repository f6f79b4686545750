#include "starling/flock/neighbor_average.h"

#include <map>

#include "flock/reference.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

class NeighborTest : public FlockTest {};

// All forms of the call, one step each.
template <typename E>
using Form = std::function<std::vector<E>(Flock& flock, std::vector<E> x)>;

template <typename E>
std::map<std::string, Form<E>> forms() {
  using Block = std::vector<E>;
  return {
      {"lvalue",
       [](Flock& flock, Block x) {
         const Block& changed = flock.neighbor_allreduce(x);
         require(&changed == &x, "an lvalue comes back as itself");
         return x;
       }},
      {"temporary",
       [](Flock& flock, Block x) {
         const E* where = x.data();
         Block changed = flock.neighbor_allreduce(std::move(x));
         require(changed.data() == where, "a temporary keeps its memory");
         return changed;
       }},
      {"constant",
       [](Flock& flock, const Block& x) {
         const Block before = x;
         Block changed = flock.neighbor_allreduce(x);
         require(same_bits(x, before), "a constant was changed");
         return changed;
       }},
      {"constant view",
       [](Flock& flock, const Block& x) { return flock.neighbor_allreduce(std::span<const E>(x)); }},
      {"span",
       [](Flock& flock, Block x) {
         flock.neighbor_allreduce(std::span<E>(x));
         return x;
       }},
      {"pointer",
       [](Flock& flock, Block x) {
         flock.neighbor_allreduce(x.data(), x.size());
         return x;
       }},
      {"out of place",
       [](Flock& flock, const Block& x) {
         const Block before = x;
         Block out(x.size());
         flock.neighbor_allreduce(x, out);
         require(same_bits(x, before), "the input was changed");
         return out;
       }},
      {"slot",
       [](Flock& flock, const Block& x) {
         Block out(x.size());
         Slot<E> slot = flock.outgoing<E>(x.size());
         require(slot.size() == x.size(), "size of the slot");
         std::copy(x.begin(), x.end(), slot.begin());
         flock.neighbor_allreduce(std::move(slot), out);
         return out;
       }},
      {"slot, nonblocking",
       [](Flock& flock, const Block& x) {
         Block out(x.size());
         Slot<E> slot = flock.outgoing<E>(x.size());
         std::copy(x.begin(), x.end(), slot.begin());
         flock.neighbor_allreduce_nonblocking(std::move(slot), out).wait();
         return out;
       }},
      {"nonblocking",
       [](Flock& flock, const Block& x) {
         Block out(x.size());
         Pending pending = flock.neighbor_allreduce_nonblocking(x, out);
         pending.wait();
         return out;
       }},
      {"nonblocking in place",
       [](Flock& flock, Block x) {
         flock.neighbor_allreduce_nonblocking(x, x).wait();
         return x;
       }},
  };
}

template <typename E>
void check_forms(Flock& flock, const std::string& spec, const std::vector<std::size_t>& counts) {
  flock.set_schedule(spec);
  const SchedulePtr schedule = make_schedule(spec, flock.size());
  Step step = 0;
  for (const std::size_t count : counts)
    for (const auto& [form, call] : forms<E>()) {
      require(flock.step() == step, "step");
      const auto round = static_cast<std::uint64_t>(step);
      const auto result = call(flock, start_block<E>(flock.rank(), count, round));
      require_step(*schedule, step++, flock.rank(), result, count, round, spec + ", " + form);
    }
}

TEST_P(NeighborTest, EveryFormOfEveryTypeInEverySize) {
  run([](Flock& flock) {
    for_floating_types([&]<typename E>(std::type_identity<E>) {
      check_forms<E>(flock, "exponential", {0, 1, 3, 17, 1000});
    });
    check_forms<float>(flock, "one-peer-exponential", {100'003});
  });
}

TEST_P(NeighborTest, StepsWithAGroupMean) {
  run([](Flock& flock) {
    std::vector<std::string> specs = {"complete", "periodic(ring,h=2)", "periodic(star,h=3)"};
    if (flock.size() % 2 == 0)
      specs.insert(specs.end(), {"hierarchical(ring,local=2)", "hierarchical(one-peer-exponential,local=2)"});
    for (const std::string& spec : specs)
      for_floating_types([&]<typename E>(std::type_identity<E>) { check_forms<E>(flock, spec, {0, 17}); });
    check_forms<float>(flock, specs.back(), {30'011});
  });
}

TEST_P(NeighborTest, AGroupMeanIsTheSameOnEveryMember) {
  run([](Flock& flock) {
    flock.set_schedule("complete");
    for_floating_types([&]<typename E>(std::type_identity<E>) {
      auto x = start_block<E>(flock.rank(), 1000);
      require_same_everywhere(flock, flock.neighbor_allreduce(x), "complete");
    });
  });
}

TEST_P(NeighborTest, ManyStepsOfEveryKindOfSchedule) {
  run([](Flock& flock) {
    for (const char* spec : {"ring", "star", "one-peer-exponential", "od-equidyn(seed=3)", "base(k=2)",
                             "chain", "periodic(one-peer-exponential,h=3)"}) {
      flock.set_schedule(spec);
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      for (Step step = 0; step < 7; ++step) {
        const auto round = static_cast<std::uint64_t>(step);
        auto x = start_block<float>(flock.rank(), 19, round);
        require_step(*schedule, step, flock.rank(), flock.neighbor_allreduce(x), 19, round, spec);
      }
    }
  });
}

TEST_P(NeighborTest, GroupsOfTensorsOfMixedTypes) {
  run([](Flock& flock) {
    for (const std::string spec : {"exponential", "complete", "periodic(ring,h=2)"}) {
      flock.set_schedule(spec);
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      for (Step step = 0; step < 4; ++step) {
        // Odd lengths of short types before long ones: the message must align them.
        auto halves = start_block<Half>(flock.rank(), 3, 1);
        auto doubles = start_block<double>(flock.rank(), 17, 2);
        std::vector<float> none;
        auto shorts = start_block<BFloat16>(flock.rank(), 1, 3);
        auto floats = start_block<float>(flock.rank(), 1001, 4);
        std::vector<Buffer> tensors = {buffer_of(halves), buffer_of(doubles), buffer_of(none),
                                       buffer_of(shorts), buffer_of(floats)};
        if (step % 2 == 0) {
          flock.neighbor_allreduce_group(tensors);
        } else {
          flock.neighbor_allreduce_group_nonblocking(tensors).wait();
        }
        require_step(*schedule, step, flock.rank(), halves, 3, 1, spec);
        require_step(*schedule, step, flock.rank(), doubles, 17, 2, spec);
        require_step(*schedule, step, flock.rank(), shorts, 1, 3, spec);
        require_step(*schedule, step, flock.rank(), floats, 1001, 4, spec);
      }
      std::vector<std::vector<float>> rows = {start_block<float>(flock.rank(), 5, 5),
                                              start_block<float>(flock.rank(), 2, 6)};
      flock.neighbor_allreduce_group(rows);
      require_step(*schedule, 4, flock.rank(), rows[0], 5, 5, spec);
      require_step(*schedule, 4, flock.rank(), rows[1], 2, 6, spec);
    }
  });
}

// A directed graph with weights and scales that every rank knows, different in each round.
struct Edge {
  bool exists;
  double weight;
  double scale;
};
Edge edge(Rank from, Rank to, std::uint64_t round) {
  const std::uint64_t random = scrambled(round * 10'007 + static_cast<std::uint64_t>(from * 100 + to + 1));
  return {from != to && random % 3 != 0, static_cast<double>(random % 17 + 1) / 16,
          static_cast<double>(random % 11) / 4 - 1};
}

enum class Given { both, sources, destinations, scales };

Weighted weights_of(const Flock& flock, Given given, std::uint64_t round) {
  Weighted weights{0.375, std::map<Rank, double>(), std::map<Rank, double>()};
  for (Rank other = 0; other < flock.size(); ++other) {
    if (edge(other, flock.rank(), round).exists)
      (*weights.sources)[other] = edge(other, flock.rank(), round).weight;
    const Edge out = edge(flock.rank(), other, round);
    if (out.exists) (*weights.destinations)[other] = given == Given::scales ? out.scale : 1;
  }
  if (given == Given::sources) weights.destinations.reset();
  if (given == Given::destinations) weights.sources.reset();
  return weights;
}

TEST_P(NeighborTest, TheCallersOwnWeights) {
  run([](Flock& flock) {
    std::uint64_t round = 0;
    for (const Given given : {Given::both, Given::sources, Given::destinations, Given::scales})
      for_floating_types([&]<typename E>(std::type_identity<E>) {
        for (const std::size_t count : {0U, 3U, 1000U}) {
          ++round;
          const Weighted weights = weights_of(flock, given, round);
          Shares shares = {{flock.rank(), weights.self_weight}};
          for (Rank other = 0; other < flock.size(); ++other) {
            const Edge in = edge(other, flock.rank(), round);
            const double weight = given == Given::destinations ? 1 : in.weight;
            if (in.exists) shares.emplace_back(other, weight * (given == Given::scales ? in.scale : 1));
          }
          const int between = given == Given::scales ? 1 : 0;
          const auto what = fmt::format("weights, case {}", static_cast<int>(given));
          const auto start = start_block<E>(flock.rank(), count, round);
          auto x = start;
          require(&flock.neighbor_allreduce(x, weights) == &x, "an lvalue comes back as itself");
          require_shares(x, shares, count, round, between, what);
          require_shares(flock.neighbor_allreduce(std::vector<E>(start), weights, "temporary"), shares, count,
                         round, between, what);
          std::vector<E> out(count);
          flock.neighbor_allreduce_nonblocking(start, out, weights, "nonblocking").wait();
          require(same_bits(out, x), what + ": nonblocking differs from blocking");
          require(flock.step() == 0, "weights of one's own take no step");
        }
      });
  });
}

TEST_P(NeighborTest, PairsGossip) {
  run([](Flock& flock) {
    const Rank peer = flock.rank() ^ 1;
    if (peer >= flock.size()) return;
    std::uint64_t round = 0;
    for (const double self_weight : {0.5, 0.25, 0.0, 1.0})
      for_floating_types([&]<typename E>(std::type_identity<E>) {
        for (const std::size_t count : {0U, 1U, 17U, 1000U}) {
          ++round;
          const Shares shares = {{flock.rank(), self_weight}, {peer, 1 - self_weight}};
          const auto start = start_block<E>(flock.rank(), count, round);
          auto x = start;
          flock.pair_gossip(x, peer, self_weight);
          require_shares(x, shares, count, round, 0, "pair_gossip");
          std::vector<E> out(count);
          flock.pair_gossip_nonblocking(start, out, peer, self_weight).wait();
          require(same_bits(out, x), "nonblocking pair_gossip");
          require(same_bits(flock.pair_gossip(std::vector<E>(start), peer, self_weight), x), "temporary");
        }
      });
  });
}

// If the fabric reports a message as lost, its weight goes to the receiver, in the same step.
TEST_P(NeighborTest, LostMessagesLeaveTheirWeightToTheReceiver) {
  const auto ends = GetParam().launcher->run(GetParam().size, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(make_faulty(fabric, {.seed = 3, .lose = 0.3}));
    flock.set_timeout(20s);
    flock.set_schedule("ring");
    bool lost = false;
    for (int step = 0; step < 100; ++step) {
      std::vector<double> x = {1, flock.rank() == 0 ? 0.0 : 1.0};
      flock.neighbor_allreduce(x);
      require(std::abs(x[0] - 1) < 1e-12, "the weights sum to one");
      lost = lost || (flock.rank() == 1 && x[1] == 1);
    }
    require(lost || flock.rank() != 1, "rank 1 has received from rank 0 in every step");
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, NeighborTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);

}  // namespace
}  // namespace starling::flock
