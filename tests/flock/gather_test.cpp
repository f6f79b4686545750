#include "starling/flock/gather.h"

#include "flock/reference.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

class GatherTest : public FlockTest {};

/// Lengths that differ from rank to rank, some of them zero.
std::size_t length(Rank rank, std::size_t scale) {
  return (static_cast<std::size_t>(rank) * 5 + 3) % 7 / 2 * scale;
}

template <typename E>
void append(std::vector<E>& all, const std::vector<E>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

TEST_P(GatherTest, AllgatherConcatenatesInRankOrder) {
  run([](Flock& flock) {
    for_all_types([&]<typename E>(std::type_identity<E>) {
      for (const std::size_t scale : {0U, 1U, 17U, 10'001U}) {
        std::vector<E> expected;
        for (Rank r = 0; r < flock.size(); ++r) append(expected, start_block<E>(r, length(r, scale)));
        const auto mine = start_block<E>(flock.rank(), length(flock.rank(), scale));
        require(same_bits(flock.allgather(mine), expected), "allgather");
        std::vector<E> all(2);
        flock.allgather_nonblocking(mine, all).wait();
        require(same_bits(all, expected), "nonblocking allgather");
      }
    });
  });
}

TEST_P(GatherTest, NeighborAllgatherConcatenatesInScheduleOrder) {
  run([](Flock& flock) {
    for (const std::string spec : {"exponential", "ring", "star", "one-peer-exponential",
                                   "od-equidyn(seed=3)", "complete", "periodic(ring,h=2)"}) {
      flock.set_schedule(spec);
      const SchedulePtr schedule = make_schedule(spec, flock.size());
      Step step = 0;
      for_all_types([&]<typename E>(std::type_identity<E>) {
        for (const std::size_t scale : {1U, 17U}) {
          const Exchange exchange = schedule->exchange(step, flock.rank());
          std::vector<E> expected;
          for (std::int64_t i = 0; i < exchange.group.size(); ++i)
            if (exchange.group[i] != flock.rank())
              append(expected, start_block<E>(exchange.group[i], length(exchange.group[i], scale)));
          for (const Source& source : exchange.sources)
            append(expected, start_block<E>(source.rank, length(source.rank, scale)));
          const auto mine = start_block<E>(flock.rank(), length(flock.rank(), scale));
          std::vector<E> all;
          if (scale == 1) {
            all = flock.neighbor_allgather(mine);
          } else {
            flock.neighbor_allgather_nonblocking(mine, all).wait();
          }
          require(same_bits(all, expected), fmt::format("{} step {}", spec, step));
          require(flock.step() == ++step, "the step moves on");
        }
      });
    }
  });
}

TEST_P(GatherTest, PointToPoint) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    if (n == 1) return;
    const Rank right = (flock.rank() + 1) % n;
    const Rank left = (flock.rank() + n - 1) % n;
    for_all_types([&]<typename E>(std::type_identity<E>) {
      for (const std::size_t count : {0U, 1U, 3U, 17U, 1000U}) {
        // Sending does not block: several messages are in flight before the receiver takes them, and keep
        // their order.
        for (std::uint64_t k = 0; k < 3; ++k) flock.send(start_block<E>(flock.rank(), count, k), right);
        for (std::uint64_t k = 0; k < 3; ++k) {
          std::vector<E> x(count);
          if (k == 1) {
            flock.recv_nonblocking(x, left).wait();
          } else {
            flock.recv(x, left);
          }
          require(same_bits(x, start_block<E>(left, count, k)), fmt::format("message {} of {}", k, count));
        }
      }
    });
    // Messages of different names are matched separately.
    flock.send(start_block<double>(flock.rank(), 100'003), right, "first");
    flock.send(start_block<float>(flock.rank(), 5), right, "second");
    std::vector<float> second(5);
    flock.recv(std::span(second), left, "second");
    std::vector<double> first(100'003);
    flock.recv(first, left, "first");
    require(same_bits(second, start_block<float>(left, 5)) &&
                same_bits(first, start_block<double>(left, 100'003)),
            "names");
  });
}

TEST_P(GatherTest, SendToSelfArrivesOrIsRejected) {
  run([](Flock& flock) {
    flock.set_timeout(1s);
    const auto letter = start_block<float>(flock.rank(), 5);
    std::vector<float> x(5);
    try {
      flock.send(letter, flock.rank());
      flock.recv(x, flock.rank());
    } catch (const InvalidArgument&) {
      return;
    }
    require(same_bits(x, letter), "a message to oneself");
  });
}

TEST_P(GatherTest, NoRankLeavesABarrierBeforeTheLastArrives) {
  run([](Flock& flock) {
    const Rank n = flock.size();
    for (Rank late = 0; late < n; ++late) {
      // The late rank messages all others just before it enters; a rank that has left the barrier must have
      // this message.
      std::vector<std::int32_t> word(1);
      Pending told;
      if (flock.rank() != late) {
        told = flock.recv_nonblocking(word, late, "word");
        flock.send(std::vector<std::int32_t>{flock.rank()}, late, "waiting");
      }
      if (flock.rank() == late) {
        for (Rank r = 0; r < n; ++r)
          if (r != late) flock.recv(word, r, "waiting");
        for (Rank r = 0; r < n; ++r)
          if (r != late) flock.send(std::vector<std::int32_t>{late}, r, "word");
      }
      if (late % 2 == 0) {
        flock.barrier();
      } else {
        flock.barrier_nonblocking().wait();
      }
      require(flock.rank() == late || told.ready(), "through before the last has come");
      require(flock.rank() == late || word[0] == late, "word");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, GatherTest, testing::ValuesIn(launches({1, 2, 3, 5, 8}, false)),
                         launch_name);

}  // namespace
}  // namespace starling::flock
