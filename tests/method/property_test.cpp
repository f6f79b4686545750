#include <cmath>
#include <gmock/gmock.h>
#include <set>

#include "base/test_name.h"
#include "method/dense.h"
#include "method/on_flock.h"
#include "starling/topology/registry.h"

// Properties that hold for any numbers.

namespace starling::method {
namespace {

MethodRun run_of(const std::string& method, const std::string& topology, const std::string& optimizer,
                 Rank n) {
  MethodRun run;
  run.problem = {.n = n};
  run.options = {.method = method, .topology = topology, .optimizer = optimizer};
  return run;
}

template <typename T>
Number distance(const std::vector<T>& x, const Vector& to) {
  Number largest = 0;
  for (std::size_t k = 0; k < x.size(); ++k)
    largest = std::max(largest, std::abs(static_cast<Number>(x[k]) - to[k]));
  return largest;
}

struct Still {
  std::string method;
  std::vector<std::string> topologies;
  std::string optimizer = "sgd(lr=0)";
  bool agrees = true;  // in the end, all ranks hold the mean
};

void PrintTo(const Still& one, std::ostream* out) {
  *out << one.method;
}

class WithoutStepsTest : public testing::TestWithParam<Still> {
 protected:
  /// Whether the method adds up a sum in every step: only curvature corrects its rounding errors, and it
  /// converges more slowly.
  static bool sums_up() {
    static const std::set<std::string> some = {"extra", "exact-diffusion", "d2", "proxskip", "choco"};
    return some.contains(parse_spec(GetParam().method).word);
  }
};

TEST_P(WithoutStepsTest, DoublyStochasticMixingKeepsTheMeanAndAgrees) {
  const Still& one = GetParam();
  for (const std::string& topology : one.topologies)
    for (const Rank n : {2, 4, 5}) {
      const std::string text = fmt::format("{} on {}, {}", one.method, topology, n);
      MethodRun run = run_of(one.method, topology, one.optimizer, n);
      run.steps = sums_up() ? 3000 : 420;
      const auto wide = trajectory<double>(run);
      const auto narrow = trajectory<float>(run);
      const Number rounding = sums_up() ? static_cast<Number>(run.steps) * 0x1p-23L : 2e-6L;
      const Number wide_rounding = rounding * 0x1p-25L;
      EXPECT_LT(distance(wide.mean(false), wide.mean(true)), wide_rounding) << text;
      EXPECT_LT(distance(narrow.mean(false), wide.mean(true)), rounding) << text;
      for (Rank rank = 0; rank < n && one.agrees; ++rank) {
        EXPECT_LT(distance(wide.last(rank), wide.mean(true)), wide_rounding) << text;
        EXPECT_LT(distance(narrow.last(rank), wide.mean(true)), rounding) << text;
      }
    }
}

std::vector<Still> still_ones() {
  const std::string still = "sgd(lr=0)";
  const std::vector<std::string> fixed = {"ring", "star", "u-equistatic"};
  const std::vector<std::string> any = {"ring",      "exponential", "one-peer-exponential",
                                        "base(k=1)", "complete",    "od-equidyn"};
  return {
      {"dsgd-atc", any},
      {"dsgd-atc", {"ceca"}},
      {"dsgd-awc", any},
      {"gossip-pga(h=5)", {"one-peer-exponential"}},
      {"local-sgd(tau=7)", {"ring"}},
      {"allreduce-model", {"ring"}},
      {"hierarchical", {"ring"}},
      {"gradient-tracking", any},
      {"diging", any},
      {"push-sum", any},
      {"push-diging", any},
      {"extra", fixed},
      {"exact-diffusion", fixed},
      {"d2", {"ring"}, still, false},  // its least eigenvalue needs some curvature
      {"d2", {"star"}},
      {"proxskip(p=0.5)", {"ring", "star", "complete"}},
      {"quasi-global-momentum(mu=0.5)", any, "sgd(lr=1e-30)"},  // divides by lr
      {"lag(threshold=0)", {"ring", "exponential"}},
      {"diloco(h=3)", {"ring"}, still, false},
      {"noloco(h=2)", {"random-matching", "base(k=1)"}},
      {"choco(codec=identity,gamma=1)", {"ring", "exponential"}},
      {"choco(codec=top-k(fraction=0.4),gamma=0.3)", {"ring", "exponential"}},
      {"choco(codec=fp16,gamma=0.8)", {"ring"}, still, false},  // down to the least number of float16
      {"allreduce", {"ring"}, still, false},
      {"bytegrad", {"ring"}, still, false},
      {"qsgd(levels=4)", {"ring"}, still, false},
      {"sign-sgd", {"ring"}, still, false},
      {"qadam(warmup=3)", {"ring"}, "adam(lr=0)", false},
      {"relay-sum-grad", {"chain"}, still, false},
  };
}

INSTANTIATE_TEST_SUITE_P(All, WithoutStepsTest, testing::ValuesIn(still_ones()),
                         [](const testing::TestParamInfo<Still>& test) {
                           return test_name(test.param.method + "_" + test.param.topologies[0]);
                         });

TEST(MethodPropertyTest, RelayKeepsEqualStartsEqual) {
  for (const char* tree : {"chain", "binary-tree", "star", "double-binary-trees"})
    for (const char* missing : {"counts", "reference", "own"}) {
      MethodRun run = run_of(fmt::format("relay-sgd(missing={})", missing), tree, "sgd(lr=0)", 5);
      run.problem.equal_starts = true;
      const auto found = trajectory<double>(run);
      for (Rank rank = 0; rank < 5; ++rank)
        EXPECT_LT(distance(found.last(rank), run.problem.start_of<Number>(0)), 1e-14L)
            << tree << " " << missing;
    }
}

TEST(MethodPropertyTest, PushSumKeepsTheSumOfItsScalars) {
  const std::pair<const char*, const char*> cases[] = {
      {"push-sum", "star(weights=push)"},    {"push-sum", "chain(weights=push)"},
      {"push-sum", "fold-unfold"},           {"push-sum", "ring"},
      {"push-diging", "star(weights=push)"}, {"push-diging", "chain(weights=push)"}};
  for (const auto& [method, topology] : cases) {
    const auto ends =
        launchers()[0].run(5, [&, on = topology, by = method](const std::shared_ptr<Fabric>& fabric) {
          Flock flock(fabric);
          std::vector<float> x(3, 1.0F * static_cast<float>(flock.rank()));
          std::vector<float> gradient(3);
          Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                                {.method = by, .topology = on, .optimizer = "sgd(lr=0.1)"});
          for (int step = 0; step < 90; ++step) {
            driver.finish();
            double sum = 0;
            for (const double p : flock.allgather(std::vector{driver[0].numbers("p")[0]})) sum += p;
            require(std::abs(sum - 5) < 1e-12, fmt::format("sum(p) = {}", sum));
          }
          require(std::abs(x[0] - 2) < 1e-3, fmt::format("{}: {} is not the mean of the starts", on, x[0]));
        });
    for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << topology << ": " << end.message;
  }
}

// The fixed point of DSGD solves a linear equation: x = W(x - lr A(x - c)), or x = W x - lr A(x - c).
TEST(MethodPropertyTest, DsgdAndPushSumStayAtTheirKnownBias) {
  const Rank n = 5;
  const Number lr = 0.1L;
  for (const std::string method : {"dsgd-atc", "dsgd-awc", "push-sum"}) {
    MethodRun run = run_of(method, "ring", "sgd(lr=0.1)", n);
    run.steps = 900;
    const auto found = trajectory<double>(run);
    const Matrix w = matrix_of(*make_schedule("ring", n), 0);
    // Gauss-Seidel on (I - W + lr (W) A) x = lr (W) A c, one coordinate at a time.
    for (std::size_t k = 0; k < run.problem.count; ++k) {
      Matrix system(5, Vector(6));
      for (std::size_t i = 0; i < 5; ++i)
        for (std::size_t j = 0; j < 5; ++j) {
          const Number same = i == j ? 1 : 0;
          const Number spread = method == "dsgd-awc" ? same : w[i][j];
          const Number a = run.problem.curvature(static_cast<Rank>(j), k);
          system[i][j] = same - w[i][j] + lr * spread * a;
          system[i][5] += lr * spread * a * run.problem.minimum(static_cast<Rank>(j), k);
        }
      for (std::size_t pivot = 0; pivot < 5; ++pivot)
        for (std::size_t i = 0; i < 5; ++i) {
          const Number factor = i == pivot ? 0 : system[i][pivot] / system[pivot][pivot];
          for (std::size_t j = 0; j < 6; ++j) system[i][j] -= factor * system[pivot][j];
        }
      for (std::size_t i = 0; i < 5; ++i)
        EXPECT_NEAR(found.last(static_cast<Rank>(i))[k], static_cast<double>(system[i][5] / system[i][i]),
                    1e-10)
            << method;
    }
    EXPECT_GT(distance(found.last(0), run.problem.optimum()), 1e-3L) << method << " has no bias";
  }
}

std::vector<std::pair<std::string, std::string>> one_of_each() {
  return {{"allreduce", "ring"},
          {"allreduce-model", "ring"},
          {"parameter-server", "ring"},
          {"dsgd-atc", "one-peer-exponential"},
          {"dsgd-atc", "ceca"},
          {"dsgd-awc", "exponential"},
          {"gossip-pga(h=3)", "ring"},
          {"local-sgd(tau=3)", "ring"},
          {"hierarchical", "ring"},
          {"gradient-tracking", "ring"},
          {"push-sum", "fold-unfold"},
          {"relay-sgd", "binary-tree"},
          {"dadam", "ring"},
          {"accum-adam(s=3)", "ring"},
          {"accum-adamw(s=3)", "ring"},
          {"lag(threshold=0.2)", "ring"},
          {"proxskip(p=0.5)", "ring"},
          {"quasi-global-momentum(mu=0.8)", "one-peer-exponential"},
          {"diloco(h=3)", "ring"},
          {"noloco(h=3)", "random-matching"},
          {"extra", "ring"},
          {"exact-diffusion", "ring"},
          {"d2", "ring"},
          {"diging", "one-peer-exponential"},
          {"push-diging", "star(weights=push)"},
          {"relay-sgd(overlap=true)", "binary-tree"},
          {"relay-sum-grad", "chain"},
          {"choco(codec=top-k(fraction=0.4),gamma=0.4)", "ring"},
          {"bytegrad", "ring"},
          {"qsgd(levels=4)", "ring"},
          {"sign-sgd", "ring"},
          {"low-precision-ring", "ring"},
          {"qadam(warmup=5)", "ring"},
          {"powersgd(rank=1)", "ring"},
          {"compressed-allreduce(codec=sign)", "ring"}};
}

std::string optimizer_of(const std::string& method, double lr) {
  const std::string needed = make_method(method)->needs().optimizer;
  return fmt::format("{}(lr={})", needed.empty() ? "adamw" : needed, lr);
}

/// Whether the borders of parameters matter: codecs and thresholds work per parameter.
bool knows_parameters(const std::string& method) {
  static const std::set<std::string> some = {"lag",  "choco", "low-precision-ring", "bytegrad",
                                             "qsgd", "qadam", "powersgd",           "compressed-allreduce"};
  return some.contains(parse_spec(method).word);
}

TEST(MethodPropertyTest, SplittingIntoBlocksChangesNoBit) {
  for (const auto& [method, topology] : one_of_each()) {
    MethodRun run = run_of(method, topology, optimizer_of(method, 0.05), 4);
    run.problem.count = 50;
    run.parameters = 5;
    run.parts = 1;
    const auto whole = trajectory<float>(run);
    for (const std::size_t parts : {2U, 3U, 5U}) {
      run.parts = parts;
      EXPECT_EQ(trajectory<float>(run).values, whole.values) << method << " in " << parts << " parts";
    }
    if (knows_parameters(method)) continue;
    run.parts = 0;
    EXPECT_EQ(trajectory<float>(run).values, whole.values) << method << " of one parameter";
  }
}

TEST(MethodPropertyTest, TheFabricChangesNoBit) {
  for (const auto& [method, topology] : one_of_each()) {
    MethodRun run = run_of(method, topology, optimizer_of(method, 0.05), 4);
    const auto threads = trajectory<float>(run);
    for (const Launcher& launcher : launchers()) {
      run.launcher = &launcher;
      EXPECT_EQ(trajectory<float>(run).values, threads.values) << method << " on " << launcher.name;
    }
  }
}

// Rounded messages lose digits; the models and their mean do not.
TEST(ShortMessageTest, TheMeanIsKeptToTheRoundingOfFloat32) {
  const std::pair<const char*, const char*> cases[] = {{"dsgd-atc", "ring"},
                                                       {"dsgd-awc", "ring"},
                                                       {"dsgd-awc", "complete"},
                                                       {"gossip-pga(h=3)", "ring"},
                                                       {"gradient-tracking", "ring"}};
  for (const auto& [method, topology] : cases)
    for (const std::string message : {"bfloat16", "float16", "int8"}) {
      MethodRun run = run_of(method, topology, "sgd(lr=0)", 4);
      run.options.message = message;
      run.steps = 200;
      const auto found = trajectory<float>(run);
      EXPECT_LT(distance(found.mean(false), found.mean(true)), 2e-6L) << method << " " << message;
      // The ranks are as close as the precision of the messages allows.
      const Number near = message == "float16" ? 2e-3L : 2e-2L;
      for (Rank rank = 0; rank < 4; ++rank)
        EXPECT_LT(distance(found.last(rank), found.mean(true)), near) << method << " on " << topology;
      EXPECT_GT(distance(found.last(0), found.mean(true)), 1e-7L) << method << ": messages were not short";
    }
}

TEST(ShortMessageTest, GradientsAreAveragedToTheRoundingOfTheMessages) {
  MethodRun run = run_of("allreduce", "ring", "sgd(lr=0.1)", 4);
  const auto exact = trajectory<float>(run);
  run.options.message = "bfloat16";
  const auto rounded = trajectory<float>(run);
  const std::vector<float> reference = exact.last(2);
  const Number off = distance(rounded.last(2), Vector(reference.begin(), reference.end()));
  EXPECT_LT(off, 1e-2L);
  EXPECT_GT(off, 1e-6L);
}

TEST(ShortMessageTest, CecaOfShortMessagesComesNear) {
  MethodRun run = run_of("dsgd-atc", "ceca", "sgd(lr=0)", 5);
  for (const std::string message : {"bfloat16", "int8"}) {
    run.options.message = message;
    const auto found = trajectory<float>(run);
    for (Rank rank = 0; rank < 5; ++rank)
      EXPECT_LT(distance(found.last(rank), found.mean(true)), 4e-2L) << message;
  }
}

}  // namespace
}  // namespace starling::method
