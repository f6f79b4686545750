#include <cmath>
#include <gtest/gtest.h>

#include "base/test_name.h"
#include "simulate/simulated.h"

// Runs every method of the specification with the parameters shown there, on a flock and in the simulator.

namespace starling::simulate {
namespace {

struct Named {
  std::string method;
  std::string topology = "ring";
  std::string optimizer = "sgd(lr=0.1)";
  Number left = 0.5L;  // allowed share of the initial distance to the optimum
};

void PrintTo(const Named& one, std::ostream* out) {
  *out << one.method << " on " << one.topology;
}

std::vector<Named> all_of_the_specification() {
  const std::string adam = "adam(lr=0.05)";
  const std::string adamw = "adamw(lr=0.05)";
  return {{"allreduce"},
          {"allreduce-model"},
          {"parameter-server"},
          {"dsgd-atc"},
          {"dsgd-awc"},
          {"gossip-pga(h=4)"},
          {"local-sgd(tau=4)"},
          {"lag(threshold=0.05)"},
          {"proxskip(p=0.5)"},
          {"hierarchical"},
          {"quasi-global-momentum(mu=0.8)"},
          {"diloco(h=4)", "ring", "adamw(lr=0.01)"},
          {"noloco(h=4)", "random-matching", "sgd(lr=0.01)"},
          {"extra"},
          {"exact-diffusion"},
          {"d2"},
          {"gradient-tracking"},
          {"diging"},
          {"push-sum"},
          {"push-diging"},
          {"relay-sgd(missing=counts)", "chain"},
          {"relay-sgd(missing=reference)", "chain"},
          {"relay-sgd(missing=own)", "chain"},
          {"relay-sum-grad", "chain"},
          {"dadam", "ring", adam},
          {"accum-adam(s=2)", "ring", adam},
          {"accum-adamw(s=2)", "ring", adamw},
          {"choco(codec=top-k(fraction=0.4),gamma=0.4)"},
          {"bytegrad"},
          {"qsgd(levels=16)"},
          {"sign-sgd", "ring", "sgd(lr=0.01)", 0.99L},  // moves in the direction of the majority
          {"low-precision-ring"},
          {"qadam(warmup=10)", "ring", adam},
          {"async-push-sum"},
          {"async-average(interval=0)"},
          {"ad-psgd"},
          {"win-put"}};
}

// Topologies with other messages: groups, two blocks, one peer at a time, several trees, columns that sum to
// one.
std::vector<Named> on_other_topologies() {
  return {{"dsgd-atc", "ceca"},
          {"dsgd-atc", "ceca(k=2)"},
          {"dsgd-atc", "one-peer-exponential"},
          {"dsgd-atc", "hierarchical(ring,local=2)"},
          {"dsgd-awc", "complete"},
          {"dsgd-awc", "periodic(ring,h=3)"},
          {"dsgd-awc", "random-matching", "momentum(lr=0.02,momentum=0.8)"},
          {"gradient-tracking", "od-equidyn"},
          {"diging", "complete"},
          {"proxskip(p=0.5)", "complete"},
          {"extra", "star"},
          {"push-sum", "star(weights=push)"},
          {"push-sum", "fold-unfold"},
          {"push-diging", "chain(weights=push)", "sgd(lr=0.03)"},
          {"quasi-global-momentum(mu=0.5)", "exponential"},
          {"relay-sgd", "double-binary-trees"},
          {"relay-sgd(overlap=true)", "binary-tree"},
          {"relay-sum-grad", "double-binary-trees"},
          {"choco(codec=qsgd(levels=15),gamma=0.4)", "exponential"},
          {"choco(codec=uint8,gamma=0.5)", "ring"},
          {"compressed-allreduce(codec=random-k(fraction=0.5))"},
          {"powersgd(rank=1)"},
          {"qsgd(levels=16,feedback=true)"},
          {"low-precision-ring(codec=fp16)"}};
}

class EveryMethodTest : public testing::TestWithParam<Named> {
 protected:
  static MethodRun run() {
    MethodRun run;
    run.problem = {.n = 4, .equal_starts = true};
    run.options = {
        .method = GetParam().method, .topology = GetParam().topology, .optimizer = GetParam().optimizer};
    run.steps = 300;
    return run;
  }
};

template <typename T>
Number farthest(const Trajectory<T>& found, Step step) {
  const Vector best = found.problem.optimum();
  Number largest = 0;
  for (Rank rank = 0; rank < found.problem.n; ++rank)
    for (std::size_t k = 0; k < best.size(); ++k) {
      const Number off = std::abs(static_cast<Number>(found.at(rank, step)[k]) - best[k]);
      largest = off < largest ? largest : off;  // keeps NaN
    }
  return largest;
}

template <typename T>
testing::AssertionResult trains(const Trajectory<T>& found, Number left) {
  const Number first = farthest(found, 0);
  const Number last = farthest(found, found.steps - 1);
  if (last < left * first) return testing::AssertionSuccess();
  return testing::AssertionFailure() << static_cast<double>(last) << " from the optimum, at first "
                                     << static_cast<double>(first);
}

TEST_P(EveryMethodTest, TrainsInTheSimulator) {
  EXPECT_TRUE(trains(simulated<double>(run()), GetParam().left));
  EXPECT_TRUE(trains(simulated<float>(run()), GetParam().left));
}

// The result of an asynchronous method depends on timing: here the ranks take turns, and the simulated
// network has no delays.
TEST_P(EveryMethodTest, IsTheSameOnAFlock) {
  MethodRun both = run();
  both.in_turns = make_method(GetParam().method)->asynchronous();
  EXPECT_EQ(trajectory<double>(both).values, simulated<double>(both).values);
  EXPECT_EQ(trajectory<float>(both).values, simulated<float>(both).values);
}

TEST_P(EveryMethodTest, IsTheSameWithAnyNumberOfThreads) {
  EXPECT_EQ(simulated<float>(run(), 3).values, simulated<float>(run()).values);
}

std::string named(const testing::TestParamInfo<Named>& test) {
  return test_name(test.param.method + "_" + test.param.topology);
}

INSTANTIATE_TEST_SUITE_P(All, EveryMethodTest, testing::ValuesIn(all_of_the_specification()), named);
INSTANTIATE_TEST_SUITE_P(Others, EveryMethodTest, testing::ValuesIn(on_other_topologies()), named);

}  // namespace
}  // namespace starling::simulate
