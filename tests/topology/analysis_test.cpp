#include "starling/topology/analysis.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace starling::topology {
namespace {

Analysis analysis_of(const std::string& text, Rank n) {
  return analyze(make_schedule(text, n));
}

struct Flags {
  bool rows = true;
  bool columns = true;
  bool symmetric = true;
  bool nonnegative = true;
  bool connected = true;
};

void expect_flags(const std::string& text, Rank n, const Flags& flags) {
  SCOPED_TRACE(text + " on " + std::to_string(n));
  const Analysis analysis = analysis_of(text, n);
  EXPECT_EQ(analysis.row_stochastic, flags.rows);
  EXPECT_EQ(analysis.column_stochastic, flags.columns);
  EXPECT_EQ(analysis.symmetric, flags.symmetric);
  EXPECT_EQ(analysis.nonnegative, flags.nonnegative);
  EXPECT_EQ(analysis.connected, flags.connected);
}

TEST(AnalysisTest, DoublyStochasticAndSymmetric) {
  for (const std::string text :
       {"ring", "chain", "star", "grid", "torus", "hypercube", "complete", "erdos-renyi", "binary-tree",
        "symmetric-exponential", "u-equistatic", "one-peer-hypercube", "one-peer-ring", "base", "ou-equidyn",
        "random-matching",

        "aer(local=2)", "periodic(ring,h=3)", "double-binary-trees"})
    expect_flags(text, 16, {});
}

TEST(AnalysisTest, DirectedOnesAreNotSymmetric) {
  for (const std::string text :
       {"one-way-ring", "exponential", "d-equistatic", "one-peer-exponential", "k-peer-exponential(k=2)",
        "od-equidyn", "el-oracle(k=2)", "inner-outer-ring(local=4)", "one-peer-of(exponential)"})
    expect_flags(text, 16, {.symmetric = false});
}

TEST(AnalysisTest, UniformWeightsOnIrregularGraphsSumToOneInRowsOnly) {
  for (const std::string graph : {"star", "chain", "grid", "binary-tree"}) {
    expect_flags(graph + "(weights=uniform)", 9, {.columns = false, .symmetric = false});
    EXPECT_TRUE(analysis_of(graph + "(weights=uniform)", 9).second_modulus);
  }
  expect_flags("torus(weights=uniform)", 9, {});  // regular
  EXPECT_FALSE(analysis_of("torus(weights=uniform)", 9).second_modulus);
  expect_flags("one-peer-of(star)", 6, {.columns = false, .symmetric = false});
}

TEST(AnalysisTest, PushWeightsSumToOneInColumnsOnly) {
  expect_flags("star(weights=push)", 5, {.rows = false, .symmetric = false});
  const Analysis star = analysis_of("star(weights=push)", 5);
  EXPECT_EQ(star.mixing, Mixing::push_sum);
  // A leaf keeps 1/2, the center 1/5: differences between leaves decay by 1/2, the last mode by 3/10.
  ASSERT_TRUE(star.second_modulus);
  EXPECT_NEAR(*star.second_modulus, 0.5, 1e-12);
  expect_flags("fold-unfold", 6, {.rows = false, .symmetric = false});
  expect_flags("fold-unfold", 8, {});
}

TEST(AnalysisTest, LaplacianWeightsMayBeNegative) {
  expect_flags("star(weights=laplacian)", 6, {.nonnegative = false});
  expect_flags("matcha(ring)", 16, {.nonnegative = false});
  // The best step on a chain is 1/2 up to rounding: the rest for the diagonal is zero, not a negative weight.
  for (const Rank n : {3, 6, 9, 20}) expect_flags("chain(weights=laplacian)", n, {});
}

TEST(AnalysisTest, IdleRanksAreNotConnected) {
  expect_flags("live(ring,members=[0,2,4])", 6, {.connected = false});
  expect_flags("live(ring,members=[0..5])", 6, {});
  EXPECT_GE(analysis_of("live(ring,members=[0,2,4])", 6).rho.value().value, 1 - 1e-12);
  EXPECT_FALSE(analysis_of("live(base,members=[1,2])", 3).exact);
}

TEST(AnalysisTest, ConnectedOverAPeriodNotInEachRound) {
  EXPECT_EQ(analysis_of("one-peer-ring", 8).connected, true);
  EXPECT_EQ(analysis_of("one-peer-hypercube", 8).connected, true);
  EXPECT_EQ(analysis_of("live(one-peer-ring,members=[0,1,2,3])", 5).connected, false);
}

TEST(AnalysisTest, ReportsWhatItExamined) {
  const Analysis analysis = analyze(make_schedule("random-matching", 8, 5));
  EXPECT_EQ(analysis.name, "random-matching(seed=5)");
  EXPECT_EQ(analysis.n, 8);
  EXPECT_EQ(analysis.period, 0);
  EXPECT_TRUE(analysis.random);
  EXPECT_EQ(analysis.cost.peers, 1);
  EXPECT_EQ(analysis_of("ceca", 6).mixing, Mixing::two_block);
}

TEST(AnalysisTest, OneRankIsDone) {
  for (const Family& family : topology_families()) {
    bool needs = family.name.starts_with("test-");  // registered by other tests
    for (const Parameter& parameter : family.parameters) needs = needs || parameter.fallback.empty();
    if (needs) continue;
    SCOPED_TRACE(family.name);
    const Analysis analysis = analysis_of(family.name, 1);
    ASSERT_TRUE(analysis.exact);
    EXPECT_EQ(analysis.exact->rounds, 0);
    EXPECT_EQ(analysis.rho.value().value, 0);
    EXPECT_EQ(analysis.connected, true);
    EXPECT_EQ(analysis.row_stochastic, true);
    EXPECT_EQ(analysis.cost.messages, 0);
  }
}

void expect_exact(const std::string& text, Rank n, Step rounds, bool from_any_step) {
  SCOPED_TRACE(text + " on " + std::to_string(n));
  const Analysis analysis = analysis_of(text, n);
  EXPECT_TRUE(analysis.exactness_run);
  ASSERT_TRUE(analysis.exact);
  EXPECT_EQ(analysis.exact->rounds, rounds);
  EXPECT_EQ(analysis.exact->from_any_step, from_any_step);
  EXPECT_EQ(analysis.rho.value().value, 0);
}

TEST(ExactnessReportTest, FromAnyStep) {
  expect_exact("one-peer-exponential", 16, 4, true);
  expect_exact("one-peer-hypercube", 8, 3, true);
  expect_exact("k-peer-exponential(k=2)", 9, 2, true);
  expect_exact("hyper-hypercube(k=2)", 12, 3, true);
  expect_exact("complete", 7, 1, true);
  expect_exact("ring", 2, 1, true);
  expect_exact("ring", 3, 1, true);
  expect_exact("fold-unfold", 8, 3, true);
  expect_exact("od-equidyn", 2, 1, true);
  expect_exact("hierarchical(outer=one-peer-hypercube,local=3)", 12, 2, true);
}

TEST(ExactnessReportTest, FromTheStartOfAPeriodOnly) {
  expect_exact("one-peer-exponential(order=permuted)", 16, 4, false);
  expect_exact("base(k=1)", 6, 4, false);
  expect_exact("ceca", 12, 4, false);
  expect_exact("ceca(k=2)", 12, 3, false);
  expect_exact("ceca-1p", 12, 4, false);
  expect_exact("fold-unfold", 12, 5, false);
  expect_exact("aer(local=2)", 8, 4, false);
  expect_exact("periodic(ring,h=4)", 9, 4, false);
  expect_exact("periodic(random-matching,h=5)", 8, 5, false);
}

TEST(ExactnessReportTest, Never) {
  for (const std::string text :
       {"ring", "star", "torus", "exponential", "one-peer-exponential", "one-peer-ring", "od-equidyn",
        "random-matching", "one-peer-exponential(order=random)", "u-equistatic",
        "inner-outer-ring(local=4)"}) {
    const Analysis analysis = analysis_of(text, 12);
    EXPECT_FALSE(analysis.exact) << text;
    EXPECT_TRUE(analysis.exactness_run) << text;
    EXPECT_GT(analysis.rho.value().value, 0.01) << text;
  }
  EXPECT_FALSE(analysis_of("one-peer-exponential(order=random)", 16).exact);
  // Contracts to rounding noise long before the global mean of round 200, but that is not exactness.
  const Analysis slow = analysis_of("periodic(exponential,h=200)", 8);
  EXPECT_TRUE(!slow.exact || slow.exact->rounds == 200);
}

TEST(AnalysisLimitsTest, PropertiesOfTooLargeSchedulesStayEmpty) {
  AnalysisOptions options;
  options.matrix_limit = 10;
  options.exactness_limit = 10;
  options.circulant_limit = 10;
  const Analysis grid = analyze(make_schedule("grid", 12), options);
  EXPECT_FALSE(grid.row_stochastic || grid.column_stochastic || grid.symmetric || grid.nonnegative ||
               grid.connected);
  EXPECT_FALSE(grid.rho);
  EXPECT_FALSE(grid.exact);
  EXPECT_FALSE(grid.exactness_run);
  EXPECT_FALSE(grid.lambda_min);
  EXPECT_GT(grid.cost.messages, 0);
  EXPECT_FALSE(analyze(make_schedule("exponential", 13), options).rho);
  const Analysis base = analyze(make_schedule("base", 12), options);
  EXPECT_FALSE(base.exact);
  EXPECT_EQ(base.rho.value().how, "formula");  // costs nothing at any n
  EXPECT_TRUE(analyze(make_schedule("grid", 10), options).rho);
}

TEST(AnalysisLimitsTest, MillionsOfRanksAreAnsweredByFormula) {
  const Analysis ring = analysis_of("ring", 2'000'000);
  EXPECT_EQ(ring.rho.value().how, "formula");
  EXPECT_FALSE(ring.connected);
  EXPECT_EQ(ring.cost.messages, 4'000'000);
}

// A period of 2^31 rounds must not be run, nor one that is long only as a least common multiple.
TEST(AnalysisLimitsTest, LongPeriodsAreNotRun) {
  for (const std::string text :
       {"periodic(ring,h=2147483647)",
        "periodic(periodic(periodic(ring,h=2147483647),h=2147483629),h=2147483587)"}) {
    const Analysis analysis = analysis_of(text, 16);
    EXPECT_FALSE(analysis.exact) << text;
    EXPECT_FALSE(analysis.rho) << text;
    EXPECT_EQ(analysis.connected, true) << text;
  }
  EXPECT_FALSE(analysis_of("periodic(ring,h=2147483647)", 16).exactness_run);
  EXPECT_EQ(
      analysis_of("periodic(periodic(periodic(ring,h=2147483647),h=2147483629),h=2147483587)", 16).period, 0);
}

// one-peer-of on a graph with many degrees repeats after their least common multiple, which is too large to
// compute; periodic(...) around it then has no period, either.
TEST(AnalysisLimitsTest, NoPeriodMeansNoPeriodInsideAnother) {
  const SchedulePtr inner = make_schedule("one-peer-of(erdos-renyi)", 64);
  ASSERT_EQ(inner->period(), 0);
  ASSERT_FALSE(inner->random());
  EXPECT_EQ(make_schedule("periodic(one-peer-of(erdos-renyi),h=8)", 64)->period(), 0);
  EXPECT_EQ(make_schedule("periodic(random-matching,h=8)", 64)->period(), 8);
}

}  // namespace
}  // namespace starling::topology
