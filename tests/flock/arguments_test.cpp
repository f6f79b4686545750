// Covers the checks of arguments in starling/flock/flock.h and byte_operations.cpp.
#include "flock/reference.h"

namespace starling::flock {
namespace {

class ArgumentsTest : public FlockTest {
 protected:
  /// Every rank must throw an InvalidArgument with these words before it sends anything: neither the step
  /// count nor the next operation of any rank is affected.
  void refuse(const std::vector<std::string>& words, const FlockBody& call) {
    refusals_.push_back({words, call});
  }

  /// Runs all refusals in one flock, since some engines take longer to start than all of them together.
  void TearDown() override {
    run([refusals = refusals_](Flock& flock) {
      for (const auto& [words, call] : refusals) {
        const std::string text = message_of<InvalidArgument>([&call = call, &flock] { call(flock); });
        for (const std::string& word : words)
          require(text.find(word) != std::string::npos, fmt::format("'{}' is missing in: {}", word, text));
        require(flock.step() == 0, "a refused operation took a step");
        std::vector<std::int32_t> one = {1};
        require(flock.allreduce(one)[0] == flock.size(), "the next operation");
        require(flock.allgather(std::vector<std::int32_t>{flock.rank()}).size() ==
                    static_cast<std::size_t>(flock.size()),
                "the one after it");
      }
    });
    FlockTest::TearDown();
  }

 private:
  struct Refusal {
    std::vector<std::string> words;
    FlockBody call;
  };
  std::vector<Refusal> refusals_;
};

TEST_P(ArgumentsTest, RanksOutOfRangeAreRefused) {
  const std::string valid = fmt::format("the {} ranks 0..{}", GetParam().size, GetParam().size - 1);
  for (const Rank nobody : {-1, GetParam().size, 1'000'000}) {
    const std::string whom = fmt::format("rank {} ", nobody);
    refuse({"post: " + whom, valid},
           [=](Flock& flock) { flock.send(std::vector<float>(3), nobody, "post"); });
    refuse({whom, valid}, [=](Flock& flock) { flock.recv(std::vector<float>(3), nobody); });
    refuse({"broadcast", whom, valid}, [=](Flock& flock) { flock.broadcast(std::vector<float>(3), nobody); });
    refuse({"pair_gossip", whom, valid},
           [=](Flock& flock) { flock.pair_gossip(std::vector<float>(3), nobody); });
    refuse({"neighbor_allreduce", whom, valid}, [=](Flock& flock) {
      flock.neighbor_allreduce(std::vector<float>(3),
                               Weighted{1, {{{nobody, 1.0}}}, std::map<Rank, double>()});
    });
    refuse({"neighbor_allreduce", whom, valid}, [=](Flock& flock) {
      flock.neighbor_allreduce(std::vector<float>(3), Weighted{1, std::nullopt, {{{nobody, 1.0}}}});
    });
  }
}

TEST_P(ArgumentsTest, TheCallerAmongItsPeersIsRefused) {
  refuse({"itself"}, [](Flock& flock) { flock.pair_gossip(std::vector<float>(3), flock.rank()); });
  refuse({"itself", "self_weight"}, [](Flock& flock) {
    flock.neighbor_allreduce(std::vector<float>(3),
                             Weighted{1, {{{flock.rank(), 1.0}}}, std::map<Rank, double>()});
  });
  refuse({"itself", "self_weight"}, [](Flock& flock) {
    flock.neighbor_allreduce(std::vector<float>(3), Weighted{1, std::nullopt, {{{flock.rank(), 1.0}}}});
  });
}

TEST_P(ArgumentsTest, WeightsWithoutSourcesAndDestinationsAreRefused) {
  refuse({"mine", "sources", "destinations"}, [](Flock& flock) {
    flock.neighbor_allreduce(std::vector<float>(3), Weighted{1, std::nullopt, std::nullopt}, "mine");
  });
}

TEST_P(ArgumentsTest, AveragesOfIntegersAreRefused) {
  for_integer_types([&]<typename E>(std::type_identity<E>) {
    const std::string type = name(dtype_of<E>);
    refuse({"average", type}, [](Flock& flock) { flock.average(std::vector<E>(3)); });
    refuse({"reduce_scatter", type},
           [](Flock& flock) { flock.reduce_scatter(std::vector<E>(3), Reduction::average); });
    refuse({"neighbor_allreduce", type}, [](Flock& flock) { flock.neighbor_allreduce(std::vector<E>(3)); });
    refuse({"pair_gossip", type}, [](Flock& flock) { flock.pair_gossip(std::vector<E>(3), 0); });
  });
  refuse({"neighbor_allreduce_group", "int16"}, [](Flock& flock) {
    std::vector<float> x(3);
    std::vector<std::int16_t> y(3);
    flock.neighbor_allreduce_group(std::vector{buffer_of(x), buffer_of(y)});
  });
}

TEST_P(ArgumentsTest, EmptyGroupsAreRefused) {
  refuse({"allreduce_group", "no tensors"},
         [](Flock& flock) { flock.allreduce_group(std::vector<Buffer>()); });
  refuse({"broadcast_group", "no tensors"},
         [](Flock& flock) { flock.broadcast_group(std::vector<Buffer>(), 0); });
  refuse({"neighbor_allreduce_group", "no tensors"},
         [](Flock& flock) { flock.neighbor_allreduce_group(std::vector<std::vector<float>>()); });
}

TEST_P(ArgumentsTest, MixedTypesInAnAllreduceGroup) {
  refuse({"allreduce_group", "float32", "float64"}, [](Flock& flock) {
    std::vector<float> x(3);
    std::vector<double> y(3);
    flock.allreduce_group(std::vector{buffer_of(x), buffer_of(y)});
  });
}

TEST_P(ArgumentsTest, OutputsOfAnotherShape) {
  refuse({"mine", "3 x float32", "4 x float32"}, [](Flock& flock) {
    std::vector<float> out(4);
    flock.neighbor_allreduce(std::vector<float>(3), out, "mine");
  });
  refuse({"allreduce", "3 x float32", "3 x float64"}, [](Flock& flock) {
    std::vector<double> out(3);
    flock.allreduce_nonblocking(std::vector<float>(3), out).wait();
  });
  refuse({"neighbor_allreduce", "2 x float32", "3 x float32"}, [](Flock& flock) {
    std::vector<float> out(3);
    flock.neighbor_allreduce(flock.outgoing<float>(2), out);
  });
}

TEST_P(ArgumentsTest, ATimeoutOfZeroIsRefused) {
  refuse({"timeout"}, [](Flock& flock) { flock.set_timeout(0s); });
  refuse({"timeout"}, [](Flock& flock) { flock.set_timeout(-1ns); });
}

std::vector<Launch> plain() {
  auto all = launches({1, 3}, false);
  std::erase_if(all, [](const Launch& launch) { return launch.launcher->name.starts_with("late"); });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Fabrics, ArgumentsTest, testing::ValuesIn(plain()), launch_name);

}  // namespace
}  // namespace starling::flock
