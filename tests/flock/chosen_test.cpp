// Covers weights and neighbors that the caller chooses (Weighted, starling/flock/flock_types.h).
#include "flock/reference.h"
#include "starling/flock/neighbor_exchanger.h"
#include "starling/flock/window.h"
#include "starling/topology/registry.h"
#include "starling/topology/settable.h"

// Neighbors, weights and scales that the program chooses in each call.
namespace starling::flock {
namespace {

class OwnWeightsTest : public FlockTest {};

constexpr double kScale = 0.25;  // times 1 + the sender's rank

/// Every rank sends to the next `degree` ranks, with a scale.
Exchange scaled_exchange(Rank rank, Rank size, Rank degree) {
  Exchange exchange;
  exchange.self_weight = 0.5;
  for (Rank hop = 1; hop <= std::min<Rank>(degree, size - 1); ++hop) {
    exchange.add_source((rank - hop + size) % size, 1.0 / static_cast<double>(1 + hop));
    exchange.add_destination((rank + hop) % size, kScale * static_cast<double>(1 + rank));
  }
  return exchange;
}

double expected_at(Rank rank, Rank size, Rank degree, std::size_t i, std::uint64_t round) {
  double sum = 0.5 * start_element<float>(rank, i, round);
  for (const Source& source : scaled_exchange(rank, size, degree).sources)
    sum += source.weight * kScale * static_cast<double>(1 + source.rank) *
           start_element<float>(source.rank, i, round);
  return sum;
}

TEST_P(OwnWeightsTest, ScalesOfScheduledAveragesOfAnyLength) {
  run([](Flock& flock) {
    const auto schedule = std::make_shared<SettableSchedule>(flock.size(), flock.rank());
    NeighborExchanger rounds(flock, schedule, "settable");
    flock.set_schedule(schedule);
    std::uint64_t round = 0;
    // The last length travels in several parts.
    for (const std::size_t count : {1U, 1000U, 2'300'017U})
      for (const Rank degree : {1, 2}) {
        schedule->set(scaled_exchange(flock.rank(), flock.size(), degree));
        const auto mine = start_block<float>(flock.rank(), count, ++round);
        auto x = mine;
        flock.neighbor_allreduce(x);
        std::vector<float> by_terms(count);
        const Piece piece{{DType::float32, mine.data(), count}, buffer_of(by_terms), 0};
        PendingExchange exchanging = rounds.start({piece});
        exchanging.wait();
        combine(DType::float32, by_terms.data(), exchanging.terms(), count);
        for (std::size_t i = 0; i < count; i += 1 + count / 1000) {
          const double expected = expected_at(flock.rank(), flock.size(), degree, i, round);
          require(std::abs(x[i] - expected) < 1e-5, fmt::format("{}: {} at {}", count, x[i], i));
          require(std::abs(by_terms[i] - expected) < 1e-5, fmt::format("rounds, {} at {}", count, i));
        }
        require(same_bits(mine, start_block<float>(flock.rank(), count, round)), "the input was changed");
        flock.barrier();
      }
  });
}

TEST_P(OwnWeightsTest, NamesMayBeStartedInDifferentOrdersOnAStaticSchedule) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    constexpr std::size_t kNames = 12;
    std::vector<std::vector<double>> blocks;
    for (std::size_t k = 0; k < kNames; ++k) blocks.push_back(start_block<double>(flock.rank(), 50, k));
    std::vector<Pending> pending(kNames);
    for (std::size_t k = 0; k < kNames; ++k) {
      // Each rank starts at another name, and every other rank goes backward.
      const std::size_t turn = (k + 5 * static_cast<std::size_t>(flock.rank())) % kNames;
      const std::size_t which = flock.rank() % 2 == 0 ? turn : kNames - 1 - turn;
      pending[which] = flock.neighbor_allreduce_nonblocking(blocks[which], blocks[which],
                                                            Name(fmt::format("name {}", which)));
    }
    const Exchange exchange = make_schedule("ring", flock.size())->exchange(0, flock.rank());
    for (std::size_t k = 0; k < kNames; ++k) {
      pending[k].wait();
      for (std::size_t i = 0; i < 50; ++i) {
        double expected = exchange.self_weight * start_element<double>(flock.rank(), i, k);
        for (const Source& source : exchange.sources)
          expected += source.weight * start_element<double>(source.rank, i, k);
        require(std::abs(blocks[k][i] - expected) < 1e-12, fmt::format("name {}", k));
      }
    }
  });
}

TEST_P(OwnWeightsTest, GathersFromChosenRanks) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    flock.set_schedule("ring");
    const auto length = [](Rank rank) { return static_cast<std::size_t>(1 + rank % 3); };
    for (Rank shift = 1; shift < std::max<Rank>(2, n); ++shift) {
      // Receives from the previous ranks, the nearest first, which is not the order of ranks.
      std::vector<Rank> sources;
      std::vector<Rank> destinations;
      for (Rank hop = 1; hop <= std::min(shift, n - 1); ++hop) {
        sources.push_back((flock.rank() - hop + n) % n);
        destinations.push_back((flock.rank() + hop) % n);
      }
      const auto mine = start_block<double>(flock.rank(), length(flock.rank()));
      std::vector<double> expected;
      for (const Rank source : sources) {
        const auto theirs = start_block<double>(source, length(source));
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      std::vector<double> all;
      const auto room = [&all](std::size_t count) {
        all.resize(count);
        return buffer_of(all);
      };
      ByteOperations(flock)
          .neighbor_allgather({DType::float64, mine.data(), mine.size()}, room, sources, destinations,
                              "chosen")
          .wait();
      require(same_bits(all, expected), fmt::format("shift {}", shift));
      require(flock.step() == 0, "ranks of one's own take no step");
    }
  });
}

TEST_P(OwnWeightsTest, WindowsSendOtherValuesThanTheirTensor) {
  run([](Flock& flock) {
    flock.set_schedule("ring");
    const double rank = flock.rank();
    std::vector<double> x(100, 10 * rank);
    Window window = flock.create_window(x, "x", {.zero = true});
    const std::vector<double> value(100, 1 + rank);
    Window::Weights twice;
    for (const Rank to : window.destinations()) twice[to] = 2;
    window.put_value(value);
    window.accumulate_value(value, twice);
    flock.barrier();
    require(x[99] == 10 * rank && value[99] == 1 + rank && window.p() == 1, "tensor and value stay");
    window.update_then_collect();
    double expected = 10 * rank;
    for (const Rank source : window.sources()) expected += 3 * (1.0 + source);
    require(x[0] == expected && x[99] == expected, fmt::format("{} instead of {}", x[99], expected));
    flock.barrier();
    // Values that the program writes into the tensor are visible to others after publish().
    std::fill(x.begin(), x.end(), 100 + rank);
    window.publish();
    flock.barrier();
    window.get();
    flock.barrier();
    window.update_then_collect();
    expected = 100 + rank;
    for (const Rank source : window.sources()) expected += 100.0 + source;
    require(x[0] == expected && x[99] == expected, "what was published");
    window.free();
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, OwnWeightsTest, testing::ValuesIn(launches({1, 2, 3, 5}, false)),
                         launch_name);

class OwnMachineWeightsTest : public FlockTest {};

TEST_P(OwnMachineWeightsTest, WeightsBetweenMachines) {
  run([](Flock& flock) {
    setenv("STARLING_RANKS_PER_MACHINE", "2", 1);
    const Rank machines = flock.machine_size();
    const Rank from = (flock.machine_rank() + machines - 1) % machines;
    const Rank to = (flock.machine_rank() + 1) % machines;
    Weighted weights;
    weights.self_weight = 0.25;
    weights.sources = std::map<Rank, double>{{from, 0.5}};
    weights.destinations = std::map<Rank, double>{{to, 1.0 + flock.machine_rank()}};
    const auto mean_of = [](Rank machine, std::size_t i) {
      return (start_element<double>(2 * machine, i) + start_element<double>(2 * machine + 1, i)) / 2;
    };
    for (const std::size_t count : {1U, 3000U}) {
      auto x = start_block<double>(flock.rank(), count);
      const Buffer block{DType::float64, x.data(), count};
      ByteOperations(flock)
          .hierarchical_neighbor_allreduce(pieces_of(std::vector<Buffer>{block}), weights, "machines")
          .wait();
      for (std::size_t i = 0; i < count; ++i) {
        const double expected =
            0.25 * mean_of(flock.machine_rank(), i) + 0.5 * (1.0 + from) * mean_of(from, i);
        require(std::abs(x[i] - expected) < 1e-12, fmt::format("{} of {}", i, count));
      }
    }
    unsetenv("STARLING_RANKS_PER_MACHINE");
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, OwnMachineWeightsTest, testing::ValuesIn(launches({4, 6}, true)),
                         launch_name);

}  // namespace
}  // namespace starling::flock
