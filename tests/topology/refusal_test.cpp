#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "starling/base/error.h"
#include "starling/topology/registry.h"

namespace starling::topology {
namespace {

// The error of every family for an invalid n or parameter: the reason, and what is valid.

struct Refusal {
  std::string text;
  Rank n;
  std::string message;
};

std::string error_of(const std::string& text, Rank n) {
  try {
    make_schedule(text, n);
  } catch (const InvalidArgument& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not InvalidArgument: ") + error.what();
  }
  return "accepted";
}

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals)
    EXPECT_EQ(error_of(refusal.text, refusal.n), refusal.message) << refusal.text << " n = " << refusal.n;
}

TEST(RefusalTest, SizesThatAFamilyDoesNotHave) {
  expect_refusals({
      {"hypercube", 12, "hypercube: n = 12 is not a power of two; nearest are 8 and 16"},
      {"one-peer-hypercube", 7, "one-peer-hypercube: n = 7 is not a power of two; nearest are 4 and 8"},
      {"hypercube", 2147483647,
       "hypercube: n = 2147483647 is not a power of two; nearest are 1073741824 and 2147483648"},
      {"one-peer-ring", 7, "one-peer-ring: n = 7 is odd; it needs an even n"},
      {"ceca-1p", 9, "ceca-1p: n = 9 is odd; ceca takes any n"},
      {"hyper-hypercube", 12,
       "hyper-hypercube: n = 12 has a prime factor above k+1 = 2; base(k=1) takes any n"},
      {"hyper-hypercube(k=4)", 14,
       "hyper-hypercube: n = 14 has a prime factor above k+1 = 5; base(k=4) takes any n"},
      {"el-oracle(k=8)", 8, "el-oracle: k=8 must be below n = 8"},
      {"el-oracle(k=9)", 8, "el-oracle: k=9 must be below n = 8"},
  });
  EXPECT_EQ(error_of("el-oracle(k=7)", 8), "accepted");
  EXPECT_EQ(error_of("hyper-hypercube(k=6)", 14), "accepted");
}

TEST(RefusalTest, MachinesThatDoNotFit) {
  expect_refusals({
      {"hierarchical(outer=ring,local=5)", 12, "hierarchical: n = 12 is not a multiple of local=5"},
      {"aer(local=5)", 12, "aer: n = 12 is not a multiple of local=5"},
      {"aer(local=0)", 12, "aer: local=0 is not valid; expected a whole number from 1 to 2147483647"},
      {"inner-outer-ring(local=5)", 12, "inner-outer-ring: n = 12 is not a multiple of local=5"},
      {"inner-outer-ring(local=2)", 12,
       "inner-outer-ring: needs local >= 3 and at least 2 machines, not 6 machines of 2"},
      {"inner-outer-exponential(local=12)", 12,
       "inner-outer-exponential: needs local >= 3 and at least 2 machines, not 1 machines of 12"},
      {"inner-outer-ring", 12,
       "inner-outer-ring needs local= (ranks per machine, at least 3); valid are local="},
      {"hierarchical(outer=hypercube,local=2)", 12,
       "hypercube: n = 6 is not a power of two; nearest are 4 and 8"},
  });
}

TEST(RefusalTest, GraphsThatChange) {
  expect_refusals({
      {"one-peer-of(one-peer-exponential)", 8,
       "one-peer-of: one-peer-exponential(seed=0) changes with the step; a static graph is needed"},
      {"one-peer-of(random-matching)", 8,
       "one-peer-of: random-matching(seed=0) changes with the step; a static graph is needed"},
      {"matcha(base(k=2))", 8, "matcha: base(k=2) changes with the step; a static graph is needed"},
      {"matcha(od-equidyn)", 8, "matcha: od-equidyn(seed=0) changes with the step; a static graph is needed"},
      {"matcha(live(ring,members=[0..3]))", 6,
       "matcha: live(ring,members=[0..3]) is not connected (rank 4 is cut off)"},
      {"bfs-tree(one-peer-ring)", 8,
       "bfs-tree: one-peer-ring is not connected in round 0 (rank 2 is cut off)"},
  });
}

TEST(RefusalTest, WeightsThatAGraphDoesNotAllow) {
  const std::string directed =
      ": metropolis and laplacian weights need an undirected graph; use weights=uniform or push";
  expect_refusals({
      {"exponential(weights=metropolis)", 8, "exponential" + directed},
      {"exponential(weights=laplacian)", 8, "exponential" + directed},
      {"one-way-ring(weights=metropolis)", 8, "one-way-ring" + directed},
      {"ring(weights=equal)", 8,
       "ring: weights=equal is not valid; expected one of metropolis, uniform, laplacian, push"},
  });
  EXPECT_EQ(error_of("one-way-ring(weights=metropolis)", 2), "accepted");  // both directions are one edge
}

TEST(RefusalTest, ParametersOutOfRange) {
  const std::string whole = " is not valid; expected a whole number from ";
  expect_refusals({
      {"star(center=8)", 8, "star: center=8" + whole + "0 to 7"},
      {"grid(rows=3)", 8, "grid: rows=3 does not divide n = 8"},
      {"torus(rows=16)", 8, "torus: rows=16" + whole + "1 to 8"},
      {"erdos-renyi(p=1.5)", 8, "erdos-renyi: p=1.5 is not valid; expected a number from 0 to 1"},
      {"erdos-renyi(p=0)", 8,
       "erdos-renyi: none of 1000 graphs with p=0 on 8 ranks was connected; try p above 0.26"},
      {"erdos-renyi(p=0.01)", 50,
       "erdos-renyi: none of 1000 graphs with p=0.01 on 50 ranks was connected; try p above 0.0782"},
      {"exponential(base=1)", 8, "exponential: base=1" + whole + "2 to 2147483647"},
      {"symmetric-exponential(base=1)", 8, "symmetric-exponential: base=1" + whole + "2 to 2147483647"},
      {"k-tree(k=1)", 8, "k-tree: k=1" + whole + "2 to 2147483647"},
      {"bfs-tree(ring,root=8)", 8, "bfs-tree: root=8" + whole + "0 to 7"},
      {"binary-tree(mirror=1)", 8,
       "binary-tree: mirror=1 is not valid; expected one of yes, no, true, false"},
      {"d-equistatic(m=0)", 8, "d-equistatic: m=0" + whole + "1 to 1048576"},
      {"one-peer-exponential(order=any)", 8,
       "one-peer-exponential: order=any is not valid; expected one of cyclic, permuted, random"},
      {"k-peer-exponential(k=0)", 8, "k-peer-exponential: k=0" + whole + "1 to 65536"},
      {"base(k=0)", 8, "base: k=0" + whole + "1 to 65536"},
      {"simple-base(k=0)", 8, "simple-base: k=0" + whole + "1 to 65536"},
      {"ceca(k=0)", 8, "ceca: k=0" + whole + "1 to 65536"},
      {"hyper-hypercube(k=0)", 8, "hyper-hypercube: k=0" + whole + "1 to 2147483647"},
      {"el-oracle(k=0)", 8, "el-oracle: k=0" + whole + "1 to 2147483647"},
      {"od-equidyn(eta=2)", 8, "od-equidyn: eta=2 is not valid; expected a number from 0 to 1"},
      {"ou-equidyn(m=0)", 8, "ou-equidyn: m=0" + whole + "1 to 1048576"},
      {"matcha(ring,budget=0)", 8, "matcha: budget=0 is not valid; expected a number from 1e-06 to 1"},
      {"periodic(ring,h=0)", 8, "periodic: h=0" + whole + "1 to 2147483647"},
      {"live(ring,members=[])", 8,
       "live: members=[] is not valid; expected ranks below 8 in ascending order, such as [0,2,5..9]"},
      {"live(ring,members=[0,8])", 8,
       "live: members=[0,8] is not valid; expected ranks below 8 in ascending order, such as [0,2,5..9]"},
      {"random-matching(seed=-1)", 8,
       "random-matching: seed=-1 is not valid; expected a whole number from 0 to 2^64-1"},
      {"custom", 8,
       "custom needs file= (an edge list or a matrix, CSV or JSON); valid are file=, format=auto, "
       "directed=no, negative=no, "
       "weights=metropolis"},
  });
}

TEST(RefusalTest, OneRankIsLegalEverywhere) {
  for (const std::string text :
       {"hypercube", "one-peer-hypercube", "one-peer-ring", "ceca-1p", "hyper-hypercube", "el-oracle(k=5)",
        "aer(local=4)", "inner-outer-ring(local=4)", "inner-outer-exponential(local=2)",
        "hierarchical(outer=ring,local=8)", "matcha(ring)", "one-peer-of(exponential)", "erdos-renyi(p=0)",
        "bfs-tree(star)", "live(base,members=[0])", "periodic(ceca,h=3)"})
    EXPECT_EQ(error_of(text, 1), "accepted") << text;
}

}  // namespace
}  // namespace starling::topology
