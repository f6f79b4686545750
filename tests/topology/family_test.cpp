#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "base/test_name.h"
#include "starling/base/error.h"
#include "starling/topology/registry.h"
#include "topology/dense_reference.h"
#include "topology/family_checks.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

using Allows = std::function<bool(int)>;

Allows any() {
  return [](int) { return true; };
}

struct FamilyCase {
  std::string text;
  Claims claims;
  Allows allows = any();
  int first_n = 1;  // the specification does not cover smaller n
};

void PrintTo(const FamilyCase& family, std::ostream* out) {
  *out << family.text;
}

constexpr Sums kRows = Sums::rows;
constexpr Sums kColumns = Sums::columns;
constexpr Sums kBoth = Sums::both;

bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}

Allows even() {
  return [](int n) { return n == 1 || n % 2 == 0; };
}

Allows power_of_two() {
  return is_power_of_two;
}

Allows smooth(int largest) {
  return [largest](int n) { return reference::is_smooth(n, largest); };
}

Allows machines(int local, Allows count = any()) {
  return [local, count](int n) { return n == 1 || (n % local == 0 && count(n / local)); };
}

Allows at_least_two() {
  return [](int n) { return n >= 2; };
}

class FamilyTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyTest, EqualsTheReference) {
  const FamilyCase& family = GetParam();
  std::vector<int> sizes;
  for (int n = family.first_n; n <= 64; ++n) sizes.push_back(n);
  sizes.insert(sizes.end(), {100, 127, 128, 200});
  for (const int n : sizes) {
    if (family.allows(n)) {
      expect_equals_reference(family.text, n, family.claims);
    } else {
      EXPECT_THROW(make_schedule(family.text, n), InvalidArgument) << family.text << " n=" << n;
    }
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Static, FamilyTest,
    testing::Values(
        FamilyCase{"ring", {kBoth, true, 2, 2}}, FamilyCase{"one-way-ring", {kBoth, false, 1, 1}},
        FamilyCase{"chain", {kBoth, true, 2, 2}}, FamilyCase{"star", {kBoth, true}},
        FamilyCase{"star(center=2)", {kBoth, true}, any(), 3}, FamilyCase{"grid", {kBoth, true, 4, 4}},
        FamilyCase{"grid(rows=2)", {kBoth, true, 3, 3}, even(), 2},
        FamilyCase{"grid(rows=6)", {kBoth, true, 4, 4}, machines(6), 2},
        FamilyCase{"torus", {kBoth, true, 4, 4}}, FamilyCase{"torus(rows=2)", {kBoth, true, 3, 3}, even(), 2},
        FamilyCase{"torus(rows=3)", {kBoth, true, 4, 4}, machines(3), 2},
        FamilyCase{"torus(rows=8)", {kBoth, true, 4, 4}, machines(8), 2},
        FamilyCase{"hypercube", {kBoth, true, 7, 7}, power_of_two()}, FamilyCase{"complete", {kBoth, true}},
        FamilyCase{"exponential", {kBoth, false, 8, 8}},
        FamilyCase{"exponential(base=3)", {kBoth, false, 5, 5}},
        FamilyCase{"exponential(base=4)", {kBoth, false, 4, 4}},
        FamilyCase{"exponential(base=10)", {kBoth, false, 3, 3}},
        FamilyCase{"symmetric-exponential", {kBoth, true}},
        FamilyCase{"symmetric-exponential(base=2)", {kBoth, true}},
        FamilyCase{"symmetric-exponential(base=3)", {kBoth, true}},
        FamilyCase{"binary-tree", {kBoth, true, 3, 3}},
        FamilyCase{"binary-tree(mirror=yes)", {kBoth, true, 3, 3}},
        FamilyCase{"double-binary-trees", {kBoth, true, 3, 3}},
        FamilyCase{"k-tree(k=2)", {kBoth, true, 2, 2}}, FamilyCase{"k-tree(k=3)", {kBoth, true, 3, 3}},
        FamilyCase{"k-tree(k=5)", {kBoth, true, 5, 5}}, FamilyCase{"bfs-tree(of=ring)", {kBoth, true, 2, 2}},
        FamilyCase{"bfs-tree(of=grid,root=3)", {kBoth, true, 4, 4}, any(), 4},
        FamilyCase{"bfs-tree(of=exponential)", {kBoth, true}},
        FamilyCase{"bfs-tree(of=one-way-ring,root=1)", {kBoth, true, 2, 2}, any(), 2},
        FamilyCase{"bfs-tree(of=complete,root=4)", {kBoth, true}, any(), 5}),
    [](const auto& tested) { return test_name(tested.param.text); });

INSTANTIATE_TEST_SUITE_P(
    Changing, FamilyTest,
    testing::Values(
        FamilyCase{"one-peer-exponential", {kBoth, false, 1, 1}},
        FamilyCase{"one-peer-exponential(order=cyclic)", {kBoth, false, 1, 1}},
        FamilyCase{"k-peer-exponential(k=1)", {kBoth, false, 1, 1}},
        FamilyCase{"k-peer-exponential(k=2)", {kBoth, false, 2, 2}},
        FamilyCase{"k-peer-exponential(k=3)", {kBoth, false, 3, 3}},
        FamilyCase{"k-peer-exponential(k=6)", {kBoth, false, 6, 6}},
        FamilyCase{"one-peer-hypercube", {kBoth, true, 1, 1}, power_of_two()},
        FamilyCase{"one-peer-ring", {kBoth, true, 1, 1}, even()}, FamilyCase{"aer", {kBoth, true, 1, 1}},
        FamilyCase{"aer(local=1)", {kBoth, true, 1, 1}},
        FamilyCase{"aer(local=2)", {kBoth, true, 3, 3}, machines(2)},
        FamilyCase{"aer(local=3)", {kBoth, true, 5, 5}, machines(3)},
        FamilyCase{"aer(local=8)", {kBoth, true, 15, 15}, machines(8)},
        FamilyCase{"inner-outer-exponential(local=3)", {kBoth, false, 1, 1}, machines(3, at_least_two())},
        FamilyCase{"inner-outer-exponential(local=4)", {kBoth, false, 1, 1}, machines(4, at_least_two())},
        FamilyCase{"inner-outer-exponential(local=5)", {kBoth, false, 1, 1}, machines(5, at_least_two())},
        FamilyCase{"inner-outer-exponential(local=8)", {kBoth, false, 1, 1}, machines(8, at_least_two())},
        FamilyCase{"inner-outer-ring(local=3)", {kBoth, false, 1, 1}, machines(3, at_least_two())},
        FamilyCase{"inner-outer-ring(local=4)", {kBoth, false, 1, 1}, machines(4, at_least_two())},
        FamilyCase{"inner-outer-ring(local=7)", {kBoth, false, 1, 1}, machines(7, at_least_two())},
        FamilyCase{"one-peer-of(ring)", {kBoth, false, 1, 1}},
        FamilyCase{"one-peer-of(one-way-ring)", {kBoth, false, 1, 1}},
        FamilyCase{"one-peer-of(exponential)", {kBoth, false, 1, 1}},
        FamilyCase{"one-peer-of(symmetric-exponential)", {kBoth, false, 1, 1}},
        FamilyCase{"one-peer-of(complete)", {kBoth, false, 1, 1}},
        FamilyCase{"one-peer-of(star(center=0))", {kRows, false, 0, 1}},
        FamilyCase{"one-peer-of(grid)", {kRows, false, 4, 1}},
        FamilyCase{"one-peer-of(binary-tree)", {kRows, false, 3, 1}},
        FamilyCase{"one-peer-of(hypercube)", {kRows, false, 7, 1}, power_of_two()}),
    [](const auto& tested) { return test_name(tested.param.text); });

INSTANTIATE_TEST_SUITE_P(
    Exact, FamilyTest,
    testing::Values(
        FamilyCase{"hyper-hypercube(k=1)", {kBoth, true, 1, 1}, smooth(2)},
        FamilyCase{"hyper-hypercube(k=2)", {kBoth, true, 2, 2}, smooth(3)},
        FamilyCase{"hyper-hypercube(k=3)", {kBoth, true, 3, 3}, smooth(4)},
        FamilyCase{"hyper-hypercube(k=4)", {kBoth, true, 4, 4}, smooth(5)},
        FamilyCase{"hyper-hypercube(k=6)", {kBoth, true, 6, 6}, smooth(7)},
        FamilyCase{"simple-base(k=1)", {kBoth, true, 1, 1}},
        FamilyCase{"simple-base(k=2)", {kBoth, true, 2, 2}},
        FamilyCase{"simple-base(k=3)", {kBoth, true, 3, 3}},
        FamilyCase{"simple-base(k=4)", {kBoth, true, 4, 4}},
        FamilyCase{"simple-base(k=5)", {kBoth, true, 5, 5}}, FamilyCase{"base(k=1)", {kBoth, true, 1, 1}},
        FamilyCase{"base(k=2)", {kBoth, true, 2, 2}}, FamilyCase{"base(k=3)", {kBoth, true, 3, 3}},
        FamilyCase{"base(k=4)", {kBoth, true, 4, 4}}, FamilyCase{"base(k=5)", {kBoth, true, 5, 5}},
        FamilyCase{"ceca(k=1)", {kRows, false, 1, 1}}, FamilyCase{"ceca(k=2)", {kRows, false, 2, 2}},
        FamilyCase{"ceca(k=3)", {kRows, false, 3, 3}}, FamilyCase{"ceca(k=4)", {kRows, false, 4, 4}},
        FamilyCase{"ceca(k=7)", {kRows, false, 7, 7}}, FamilyCase{"ceca-1p", {kRows, false, 1, 1}, even()},
        FamilyCase{"fold-unfold", {kColumns, false, 1, 1}}),
    [](const auto& tested) { return test_name(tested.param.text); });

INSTANTIATE_TEST_SUITE_P(
    Composed, FamilyTest,
    testing::Values(
        FamilyCase{"hierarchical(outer=ring,local=4)", {kBoth, true}, machines(4)},
        FamilyCase{"hierarchical(outer=one-peer-exponential,local=1)", {kBoth, false, 1, 1}},
        FamilyCase{"hierarchical(outer=one-peer-exponential,local=3)", {kBoth}, machines(3)},
        FamilyCase{"hierarchical(outer=base(k=2),local=2)", {kBoth, true}, machines(2)},
        FamilyCase{"hierarchical(outer=ceca(k=2),local=3)", {kRows}, machines(3)},
        FamilyCase{"hierarchical(outer=fold-unfold,local=2)", {kColumns}, machines(2)},
        FamilyCase{"hierarchical(outer=hierarchical(outer=ring,local=2),local=2)",
                   {kBoth, true},
                   machines(2, machines(2))},
        FamilyCase{
            "hierarchical(outer=one-peer-hypercube,local=5)", {kBoth, true}, machines(5, power_of_two())},
        FamilyCase{"hierarchical(outer=aer(local=2),local=2)", {kBoth, true}, machines(2, machines(2))},
        FamilyCase{"hierarchical(outer=complete,local=3)", {kBoth, true}, machines(3)},
        FamilyCase{"hierarchical(outer=live(complete,members=[0,2]),local=2)", {kBoth, true}, machines(2), 6},
        FamilyCase{"hierarchical(outer=live(periodic(chain,h=2),members=[1,3,4]),local=3)",
                   {kBoth, true},
                   machines(3),
                   15},
        FamilyCase{"periodic(ring,h=4)", {kBoth, true}}, FamilyCase{"periodic(chain,h=1)", {kBoth, true}},
        FamilyCase{"periodic(one-peer-exponential,h=3)", {kBoth}},
        FamilyCase{"periodic(aer(local=2),h=5)", {kBoth, true}, machines(2)},
        FamilyCase{"periodic(ceca(k=1),h=5)", {kRows}}, FamilyCase{"periodic(ceca(k=2),h=9)", {kRows}},
        FamilyCase{"periodic(ceca-1p,h=4)", {kRows}, even()},
        FamilyCase{"periodic(hierarchical(outer=ring,local=2),h=3)", {kBoth, true}, machines(2)},
        FamilyCase{"periodic(fold-unfold,h=4)", {kColumns}},
        FamilyCase{"hierarchical(outer=periodic(ring,h=3),local=2)", {kBoth, true}, machines(2)},
        FamilyCase{"live(ring,members=[0,2,5..9])", {kBoth, true, 2, 2}, any(), 10},
        FamilyCase{"live(ceca(k=2),members=[1,3,4..10])", {kRows, false, 2, 2}, any(), 11},
        FamilyCase{"live(ceca(k=1),members=[0..5,9])", {kRows, false, 1, 1}, any(), 11},
        FamilyCase{"live(base(k=1),members=[1..7])", {kBoth, true, 1, 1}, any(), 8},
        FamilyCase{"live(complete,members=[1,3,6])", {kBoth, true}, any(), 7},
        FamilyCase{"live(live(complete,members=[0,2,3,5]),members=[1,3,4,6,8,9])", {kBoth, true}, any(), 10},
        FamilyCase{"live(live(aer(local=2),members=[0..3,5,6]),members=[1..9])", {kBoth, true}, any(), 10},
        FamilyCase{"live(hierarchical(outer=complete,local=2),members=[0,3,4,7])", {kBoth, true}, any(), 8},
        FamilyCase{"live(complete,members=[3])", {kBoth, true}, any(), 4},
        FamilyCase{"live(periodic(one-way-ring,h=3),members=[0,4,7..9])", {kBoth}, any(), 10},
        FamilyCase{"live(aer(local=3),members=[2..7,10..12])", {kBoth, true}, any(), 13},
        FamilyCase{"live(live(one-peer-exponential,members=[0,2,3,5]),members=[1,3,4,6,8,9])",
                   {kBoth, false, 1, 1},
                   any(),
                   10},
        FamilyCase{"periodic(live(ring,members=[0,2,5..9]),h=3)", {kBoth, true}, any(), 10},
        FamilyCase{"live(hierarchical(outer=one-peer-exponential,local=2),members=[0,1,4,5,8,9])",
                   {kBoth},
                   any(),
                   10}),
    [](const auto& tested) { return test_name(tested.param.text); });

// Every family with a choice of weights, under every weight rule.
TEST(WeightRulesTest, EqualTheReference) {
  int tried = 0;
  for (const Family& family : topology_families()) {
    const bool chooses = std::any_of(family.parameters.begin(), family.parameters.end(),
                                     [](const Parameter& parameter) { return parameter.name == "weights"; });
    if (!chooses || family.random || family.name == "custom") continue;
    std::string arguments;
    if (family.name == "k-tree") arguments = "k=3,";
    if (family.name == "bfs-tree") arguments = "of=grid,root=1,";
    const bool directed = family.name == "exponential" || family.name == "one-way-ring";
    const bool regular = directed || family.name == "ring" || family.name == "hypercube" ||
                         family.name == "complete" || family.name == "symmetric-exponential";
    for (int n = 3; n <= 40; ++n) {
      if (family.name == "hypercube" && !is_power_of_two(n)) continue;
      const auto text = [&](const char* rule) {
        return family.name + "(" + arguments + "weights=" + rule + ")";
      };
      expect_equals_reference(text("uniform"), n, {regular ? kBoth : kRows});
      expect_equals_reference(text("push"), n, {regular ? kBoth : kColumns});
      if (directed && n > 3) {  // up to 3 the exponential graph is complete
        EXPECT_THROW(make_schedule(text("metropolis"), n), InvalidArgument)
            << text("metropolis") << " n=" << n;
        EXPECT_THROW(make_schedule(text("laplacian"), n), InvalidArgument) << text("laplacian") << " n=" << n;
      } else if (!directed) {
        expect_equals_reference(text("metropolis"), n, {kBoth, true});
        expect_equals_reference(text("laplacian"), n, {kBoth, true}, 1e-9);
      }
      if (HasFatalFailure()) return;
    }
    ++tried;
  }
  EXPECT_GE(tried, 6);
}

}  // namespace
}  // namespace starling::topology
