// Covers Mismatch (starling/flock/errors.h) for every operation; for the mailbox alone see mailbox_test.
#include "flock/reference.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

class MismatchTest : public FlockTest {
 protected:
  /// Runs an operation in which rank 0's arguments differ from those of all others. Every rank must throw a
  /// Mismatch that names the operation and both sides, keep its block, and be able to continue.
  void disagree(const std::vector<std::string>& words, const FlockBody& operation) const {
    run([words, operation](Flock& flock) {
      const std::string text = message_of<Mismatch>([&] { operation(flock); });
      for (const std::string& word : words)
        require(text.find(word) != std::string::npos, fmt::format("'{}' is missing in: {}", word, text));
      require(text.find("rank 0") != std::string::npos, text);
      require_different_sides(text);
      go_on(flock);
    });
  }

  static void require_different_sides(const std::string& text) {
    const std::string sent = " sent ";
    const std::string expected = " expected ";
    const std::size_t first = text.find(sent);
    const std::size_t comma = text.find(", but rank ");
    const std::size_t second = text.find(expected);
    require(first < comma && comma < second && second != std::string::npos,
            "does not say what each side had: " + text);
    require(text.substr(first + sent.size(), comma - first - sent.size()) !=
                text.substr(second + expected.size()),
            "both sides are said to be the same: " + text);
  }

  // Messages from a peer arrive in order: after three rounds with all ranks, any late report of the mismatch
  // has arrived.
  static void go_on(Flock& flock) {
    for (int k = 0; k < 3; ++k) {
      std::vector<std::int64_t> x = {1, flock.rank()};
      try {
        flock.allreduce(x, Reduction::sum, "go on");
      } catch (const Mismatch& stale) {
        throw Error(std::string("raised again: ") + stale.what());
      }
      require(x[0] == flock.size() && x[1] == flock.size() * (flock.size() - 1) / 2,
              "the sum after a mismatch");
    }
  }
};

/// Calls `operation` with a block that must stay unchanged when it throws.
template <typename E, typename F>
void keeping(Flock& flock, std::size_t count, const F& operation) {
  auto x = start_block<E>(flock.rank(), count);
  try {
    operation(x);
  } catch (const Mismatch&) {
    require(same_bits(x, start_block<E>(flock.rank(), count)), "the block was changed");
    throw;
  }
}

/// Rank 1's side of a message of 10 elements.
void receive_another_length(Flock& flock) {
  std::vector<float> x(11, 3.0F);
  message_of<Mismatch>([&] { flock.recv(x, 0, "letter"); });
  require(x == std::vector<float>(11, 3.0F), "the block was changed");
}

/// Tests with two ranks, so that each is on both sides.
class PairMismatchTest : public MismatchTest {};

TEST_P(PairMismatchTest, Count) {
  disagree({"pair_gossip", "10 x float32", "11 x float32"}, [](Flock& flock) {
    keeping<float>(flock, flock.rank() == 0 ? 10 : 11,
                   [&](auto& x) { flock.pair_gossip(x, 1 - flock.rank()); });
  });
  disagree({"mine", "0 x bfloat16", "1 x bfloat16"}, [](Flock& flock) {
    keeping<BFloat16>(flock, flock.rank() == 0 ? 0 : 1,
                      [&](auto& x) { flock.neighbor_allreduce(x, "mine"); });
  });
}

TEST_P(PairMismatchTest, Type) {
  disagree({"neighbor_allreduce", "5 x float32", "5 x float64"}, [](Flock& flock) {
    const auto average = [&](auto& x) { flock.neighbor_allreduce(x); };
    flock.rank() == 0 ? keeping<float>(flock, 5, average) : keeping<double>(flock, 5, average);
  });
}

TEST_P(PairMismatchTest, AnotherScheduleAndThenTheSame) {
  disagree({"neighbor_allreduce", "schedule ring", "schedule exponential", "set the same topology"},
           [](Flock& flock) {
             flock.set_schedule(flock.rank() == 0 ? "ring" : "exponential");
             keeping<float>(flock, 5, [&](auto& x) { flock.neighbor_allreduce(x); });
           });
  run([](Flock& flock) {
    flock.set_schedule(flock.rank() == 0 ? "ring" : "one-peer-exponential");
    auto x = start_block<float>(flock.rank(), 5);
    message_of<Mismatch>([&] { flock.neighbor_allreduce(x); });
    flock.set_schedule("one-peer-exponential");
    flock.neighbor_allreduce(x);
    require_step(*make_schedule("one-peer-exponential", 2), 0, flock.rank(), x, 5, 0, "after the mismatch");
  });
}

// Scheduled operations take steps in the order in which they are started, whatever their names.
TEST_P(PairMismatchTest, Step) {
  disagree({"step 0", "step 1"}, [](Flock& flock) {
    flock.set_schedule("one-peer-ring");  // whose steps differ, though both are between the same two ranks
    auto x = start_block<float>(flock.rank(), 5);
    auto y = x;
    Pending first = flock.neighbor_allreduce_nonblocking(x, x, flock.rank() == 0 ? "a" : "b");
    Pending second = flock.neighbor_allreduce_nonblocking(y, y, flock.rank() == 0 ? "b" : "a");
    message_of<Mismatch>([&] { first.wait(); });
    const auto start = start_block<float>(flock.rank(), 5);
    try {
      second.wait();
    } catch (const Mismatch&) {
      require(same_bits(x, start) && same_bits(y, start), "the block was changed");
      throw;
    }
  });
}

// Rank 0 has sent more messages than it has received, so the two ends have different counts: no rank throws
// twice.
TEST_P(PairMismatchTest, AfterDirectedCalls) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{400'000}})
    disagree({"mine", "float32"}, [count](Flock& flock) {
      std::vector<float> x(5);
      const std::map<Rank, double> nobody;
      const std::map<Rank, double> other = {{1 - flock.rank(), 0.5}};
      for (int k = 0; k < 3; ++k)
        flock.neighbor_allreduce(
            x, flock.rank() == 0 ? Weighted{0.5, nobody, other} : Weighted{0.5, other, nobody}, "mine");
      const std::size_t here = count + static_cast<std::size_t>(flock.rank());
      keeping<float>(flock, here, [&](auto& y) { flock.neighbor_allreduce(y, "mine"); });
    });
}

TEST_P(PairMismatchTest, SelfWeight) {
  disagree({"pair_gossip", "self weight 0.5", "self weight 0.25"}, [](Flock& flock) {
    keeping<float>(flock, 5,
                   [&](auto& x) { flock.pair_gossip(x, 1 - flock.rank(), flock.rank() == 0 ? 0.5 : 0.25); });
  });
}

TEST_P(PairMismatchTest, LayoutOfANeighborGroup) {
  disagree({"neighbor_allreduce_group"}, [](Flock& flock) {
    keeping<float>(flock, 7, [&](auto& x) {
      const std::size_t first = flock.rank() == 0 ? 3 : 4;
      flock.neighbor_allreduce_group(std::vector{std::span(x).first(first), std::span(x).subspan(first)});
    });
  });
}

// The sender has continued: its next operation throws, once.
TEST_P(PairMismatchTest, TheSenderThrowsAtItsNextOperation) {
  run([](Flock& flock) {
    if (flock.rank() == 0) {
      flock.send(std::vector<float>(10), 1, "letter");
      const auto until = std::chrono::steady_clock::now() + 20s;
      const std::string text = message_of<Mismatch>([&] {
        while (std::chrono::steady_clock::now() < until)
          flock.send(std::vector<float>(1), 1, "later letters");
      });
      require(
          text.find("10 x float32") != std::string::npos && text.find("11 x float32") != std::string::npos,
          text);
    } else {
      receive_another_length(flock);
    }
    go_on(flock);
  });
}

// A mismatch of one operation must not end another one on which the ranks agree. With two phases, the others
// would wait for this rank's second phase in vain.
TEST_P(PairMismatchTest, AMismatchDoesNotAffectOtherOperations) {
  run([](Flock& flock) {
    auto x = start_block<float>(flock.rank(), 20'000);
    flock.set_timeout(2s);
    if (flock.rank() == 0) {
      Pending sum = flock.allreduce_nonblocking(x, x);
      flock.send(std::vector<float>(10), 1, "letter");
      try {
        sum.wait();
        flock.send(std::vector<float>(10), 1, "later letters");
      } catch (const Mismatch&) {
        return;  // for the message "letter", whichever call throws it
      }
      throw Error("the sender did not get the mismatch");
    }
    receive_another_length(flock);
    flock.allreduce(x);
  });
}

/// Tests with more ranks, of which only rank 0 differs from the others.
class GroupMismatchTest : public MismatchTest {};

TEST_P(GroupMismatchTest, Count) {
  disagree({"allreduce", "10 x float32", "11 x float32"}, [](Flock& flock) {
    keeping<float>(flock, flock.rank() == 0 ? 10 : 11, [&](auto& x) { flock.allreduce(x); });
  });
}

TEST_P(GroupMismatchTest, CountWhereOneGoesInSlicesAndTheOtherDoesNot) {
  disagree({"average", "8192 x float32", "8193 x float32"}, [](Flock& flock) {
    keeping<float>(flock, flock.rank() == 0 ? 8193 : 8192, [&](auto& x) { flock.average(x); });
  });
}

TEST_P(GroupMismatchTest, CountAmongNeighbors) {
  disagree({"neighbor_allreduce", "10 x float64", "11 x float64"}, [](Flock& flock) {
    flock.set_schedule("complete");
    keeping<double>(flock, flock.rank() == 0 ? 10 : 11, [&](auto& x) { flock.neighbor_allreduce(x); });
  });
}

TEST_P(GroupMismatchTest, Type) {
  disagree({"allreduce", "3 x int16", "3 x float16"}, [](Flock& flock) {
    const auto sum = [&](auto& x) { flock.allreduce(x); };
    flock.rank() == 0 ? keeping<std::int16_t>(flock, 3, sum) : keeping<Half>(flock, 3, sum);
  });
  disagree({"allgather", "int64", "float64"}, [](Flock& flock) {
    const auto gather = [&](auto& x) { flock.allgather(x); };
    flock.rank() == 0 ? keeping<std::int64_t>(flock, 3, gather) : keeping<double>(flock, 4, gather);
  });
}

TEST_P(GroupMismatchTest, Root) {
  disagree({"broadcast", "root 0", "root 1"}, [](Flock& flock) {
    keeping<float>(flock, 3, [&](auto& x) { flock.broadcast(x, flock.rank() == 0 ? 0 : 1); });
  });
}

TEST_P(GroupMismatchTest, KindOfReduction) {
  disagree({"allreduce", "sum", "max"}, [](Flock& flock) {
    keeping<float>(flock, 9000,
                   [&](auto& x) { flock.allreduce(x, flock.rank() == 0 ? Reduction::sum : Reduction::max); });
  });
  disagree({"reduce_scatter", "min", "average"}, [](Flock& flock) {
    keeping<float>(flock, 7, [&](auto& x) {
      flock.reduce_scatter(x, flock.rank() == 0 ? Reduction::min : Reduction::average);
    });
  });
}

TEST_P(GroupMismatchTest, LayoutOfABroadcastGroup) {
  disagree({"broadcast_group"}, [](Flock& flock) {
    keeping<float>(flock, 7, [&](auto& x) {
      const std::size_t first = flock.rank() == 0 ? 3 : 4;
      flock.broadcast_group(std::vector{std::span(x).first(first), std::span(x).subspan(first)}, 1);
    });
  });
}

TEST_P(GroupMismatchTest, LayoutOfAnAllreduceGroup) {
  disagree({"allreduce_group"}, [](Flock& flock) {
    keeping<float>(flock, 7, [&](auto& x) {
      const std::size_t first = flock.rank() == 0 ? 3 : 4;
      flock.allreduce_group(std::vector{std::span(x).first(first), std::span(x).subspan(first)});
    });
  });
}

// The name, count and type are equal, but the operations differ, and so do even the lengths of their
// messages.
TEST_P(GroupMismatchTest, OperationUnderOneName) {
  disagree({"mine"}, [](Flock& flock) {
    keeping<float>(flock, 12, [&](auto& x) {
      flock.rank() == 0 ? static_cast<void>(flock.allreduce(x, Reduction::sum, "mine"))
                        : static_cast<void>(flock.broadcast(x, 0, "mine"));
    });
  });
  disagree({"mine"}, [](Flock& flock) {
    keeping<float>(flock, 12, [&](auto& x) {
      flock.rank() == 0 ? static_cast<void>(flock.allreduce(x, Reduction::sum, "mine"))
                        : static_cast<void>(flock.reduce_scatter(x, Reduction::sum, "mine"));
    });
  });
}

TEST_P(GroupMismatchTest, FailurePolicies) {
  run([](Flock& flock) {
    for (const bool first : {true, false}) {
      flock.on_peer_failure((flock.rank() == 0) == first ? OnPeerFailure::reweight : OnPeerFailure::raise);
      const std::string text = message_of<Mismatch>([&] { flock.allreduce(std::vector<int>(3)); });
      require(text.find(first ? "allreduce: on_peer_failure is reweight on rank 0 and raise on rank "
                              : "allreduce: on_peer_failure is raise on rank 0 and reweight on rank ") == 0 ||
                  text.find(first ? "and reweight on rank 0; choose the same on every rank"
                                  : "and raise on rank 0; choose the same on every rank") != text.npos,
              text);
      flock.on_peer_failure(OnPeerFailure::raise);
      go_on(flock);
    }
  });
}

TEST_P(GroupMismatchTest, ADroppedPendingSwallowsItsMismatch) {
  run([](Flock& flock) {
    auto x = start_block<float>(flock.rank(), flock.rank() == 0 ? 10 : 11);
    { const Pending dropped = flock.allreduce_nonblocking(x, x); }
    require(same_bits(x, start_block<float>(flock.rank(), x.size())), "the block was changed");
    go_on(flock);
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, PairMismatchTest, testing::ValuesIn(launches({2}, false)), launch_name);
INSTANTIATE_TEST_SUITE_P(Fabrics, GroupMismatchTest, testing::ValuesIn(launches({2, 3, 5}, false)),
                         launch_name);

}  // namespace
}  // namespace starling::flock
