#include "method/dense.h"

#include <cmath>
#include <gtest/gtest.h>

#include "method/dense_codec.h"
#include "starling/topology/registry.h"

// Compares the dense references with each other: methods that are equal in a special case, and the known
// limits of each.

namespace starling::method {
namespace {

const LocalRule kSgd{.kind = "sgd", .lr = 0.1};
const LocalRule kMomentum{.kind = "sgd", .lr = 0.1, .momentum = 0.7};
const LocalRule kAdam{.kind = "adam", .lr = 0.05, .weight_decay = 0.1};

/// The largest difference between the models of two runs.
Number difference(const std::vector<Vector>& left, const std::vector<Vector>& right) {
  Number largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    for (std::size_t k = 0; k < left[i].size(); ++k)
      largest = std::max(largest, std::abs(left[i][k] - right[i][k]));
  return largest;
}

struct Twins {
  DenseSetting one, other;
  LocalRule rule = kMomentum;
  bool equal_starts = false;
  Number within = 1e-15L;
  LocalRule other_rule = rule;
};

TEST(DenseTest, SpecialCasesEqualEachOther) {
  LocalRule accumulated = kAdam;
  accumulated.kind = "accum";
  const Twins all[] = {
      {{"choco(codec=identity,gamma=1)", "ring"}, {"dsgd-atc", "ring"}},
      {{"choco(codec=top-k(fraction=1),gamma=1)", "exponential"},
       {"dsgd-atc", "exponential"},
       kSgd,
       false,
       1e-6L},
      {{"choco(codec=fp16,gamma=1)", "ring"}, {"dsgd-atc", "ring"}, kSgd, false, 1e-3L},
      {{"lag(threshold=0)", "ring"}, {"dsgd-atc", "ring"}},
      {{"proxskip(p=1)", "ring"}, {"exact-diffusion", "ring"}},
      {{"proxskip(p=0)", "ring"}, {"local-sgd(tau=100)", "ring"}},
      {{"proxskip(p=1)", "complete"}, {"d2", "complete"}},
      {{"quasi-global-momentum(mu=0)", "ring"}, {"dsgd-atc", "ring"}},
      {{"noloco(h=3)", "complete"}, {"diloco(h=3)", "ring"}, kAdam, true},
      {{"push-diging", "ring"}, {"gradient-tracking", "ring"}},
      {{"push-sum", "exponential"}, {"dsgd-atc", "exponential"}},
      {{"accum-adam(s=1)", "ring"}, {"dadam", "ring"}, accumulated, false, 1e-15L, kAdam},
      {{"qadam(warmup=100)", "ring"}, {"allreduce", "ring"}, kAdam},
      {{"bytegrad", "ring"}, {"allreduce", "ring"}, kMomentum, false, 2e-2L},
      {{"low-precision-ring", "ring"}, {"dsgd-awc", "ring"}, kSgd, true, 2e-2L},
      {{"local-sgd(tau=1)", "ring"}, {"dsgd-atc", "complete"}},
  };
  for (const Twins& twins : all)
    for (const Rank n : {1, 2, 5}) {
      const Problem problem{.n = n, .equal_starts = twins.equal_starts};
      const auto one = make_dense(twins.one, problem, twins.rule);
      const auto other = make_dense(twins.other, problem, twins.other_rule);
      for (Step t = 0; t < 40; ++t) {
        one->run_step(t);
        other->run_step(t);
        ASSERT_LE(difference(one->x, other->x), twins.within)
            << twins.one.method.to_string() << " and " << twins.other.method.to_string() << " on " << n
            << " ranks, step " << t;
      }
    }
}

// EXTRA with V = (I + W) / 2, DIGing without y, and both in the summed forms that keep the mean in float32.
TEST(DenseTest, ExtraD2AndDigingInTheirOtherForms) {
  const Problem problem{.n = 6};
  const auto extra = make_dense({"extra", "ring"}, problem, kSgd);
  const auto d2 = make_dense({"d2", "ring"}, problem, kSgd);
  const auto diging = make_dense({"diging", "ring"}, problem, kSgd);
  const Matrix w = matrix_of(*make_schedule("ring", 6), 0);
  const auto move = [&](const std::vector<Vector>& x, std::size_t i) {
    Vector g(problem.count);
    problem.gradient(static_cast<Rank>(i), x[i].data(), g.data());
    return -static_cast<Number>(kSgd.lr) * g;
  };
  std::vector<Vector> form = extra->x, summed = extra->x, summed_d2 = d2->x, plain = d2->x, old, old_plain;
  std::vector<Vector> sums(6, Vector(problem.count)), sums_d2 = sums;
  for (Step t = 0; t < 60; ++t) {
    std::vector<Vector> next = form, ahead = form;
    for (std::size_t i = 0; i < 6; ++i)
      if (t > 0) ahead[i] = 2 * form[i] - old[i];
    for (std::size_t i = 0; i < 6; ++i)
      next[i] = t == 0 ? mixed(w, form, i) + move(form, i)
                       : 0.5L * (ahead[i] + mixed(w, ahead, i)) + move(form, i) - move(old, i);
    old = form;
    form = next;

    const std::vector<Vector> mean = mixed(w, summed);
    for (std::size_t i = 0; i < 6; ++i) {
      const Vector e = mean[i] - summed[i];
      summed[i] = summed[i] + e + sums[i] + move(summed, i);
      sums[i] = sums[i] + 0.5L * e;
    }
    std::vector<Vector> hat;
    for (std::size_t i = 0; i < 6; ++i) hat.push_back(summed_d2[i] + move(summed_d2, i) + sums_d2[i]);
    summed_d2 = mixed(w, hat);
    for (std::size_t i = 0; i < 6; ++i) sums_d2[i] = sums_d2[i] + summed_d2[i] - hat[i];

    next = mixed(w, plain);
    for (std::size_t i = 0; i < 6; ++i) {
      next[i] = next[i] + move(plain, i);
      if (t > 0)
        next[i] = next[i] + mixed(w, plain, i) - mixed(w, mixed(w, old_plain), i) - move(old_plain, i);
    }
    old_plain = plain;
    plain = next;

    for (const auto& one : {&extra, &d2, &diging}) (*one)->run_step(t);
    ASSERT_LT(difference(extra->x, form), 1e-15L) << t;
    ASSERT_LT(difference(extra->x, summed), 1e-15L) << t;
    ASSERT_LT(difference(d2->x, summed_d2), 1e-15L) << t;
    ASSERT_LT(difference(diging->x, plain), 1e-15L) << t;
  }
}

TEST(DenseTest, ExactMethodsReachTheOptimumAndOthersDoNot) {
  struct End {
    DenseSetting setting;
    bool exact;
    Rank n = 8;
  };
  const End ends[] = {{{"extra", "ring"}, true},
                      {{"extra", "torus"}, true, 12},
                      {{"exact-diffusion", "ring"}, true},
                      {{"exact-diffusion", "u-equistatic"}, true, 16},
                      {{"d2", "ring"}, true},
                      {{"gradient-tracking", "exponential"}, true},
                      {{"diging", "ring"}, true},
                      {{"diging", "one-peer-exponential"}, true},
                      {{"push-diging", "star(weights=push)"}, true},
                      {{"proxskip(p=0.5)", "ring"}, true},
                      {{"proxskip(p=0.5)", "complete"}, true},
                      {{"relay-sgd", "chain"}, true},
                      {{"relay-sgd(overlap=true)", "binary-tree"}, true},
                      {{"relay-sum-grad", "chain"}, false},
                      {{"relay-sum-grad(overlap=true)", "chain"}, false},
                      {{"dsgd-atc", "ring"}, false},
                      {{"push-sum", "ring"}, false},
                      {{"quasi-global-momentum(mu=0.8)", "ring"}, false},
                      {{"choco(codec=top-k(fraction=0.2),gamma=0.3)", "ring"}, false},
                      {{"diloco(h=4)", "ring"}, false},
                      {{"lag(threshold=0.01)", "ring"}, false}};
  for (const End& end : ends) {
    const Problem problem{.n = end.n, .equal_starts = true};
    const auto dense = make_dense(end.setting, problem, {.kind = "sgd", .lr = 0.05});
    for (Step t = 0; t < 3000; ++t) dense->run_step(t);
    const std::vector<Vector> best(dense->x.size(), problem.optimum());
    const Number off = difference(dense->x, best);
    EXPECT_EQ(off < 1e-14L, end.exact) << end.setting.method.to_string() << ": " << static_cast<double>(off);
    EXPECT_LT(off, 1) << end.setting.method.to_string();
  }
}

// Follows one pulse: if the relay is part of the step, a neighbor's value is new; if it is overlapped, one
// step old.
TEST(DenseTest, ARelayIsAsLateAsHops) {
  for (const bool overlap : {false, true}) {
    const Problem problem{.n = 4, .count = 1, .equal_starts = true};
    const auto relay = make_dense({overlap ? "relay-sum-grad(overlap=true)" : "relay-sum-grad", "chain"},
                                  problem, {.kind = "sgd", .lr = 1});
    relay->skips = [](Rank rank, Step step) { return rank != 0 || step != 0; };  // only rank 0 moves, once
    const Number start = relay->x[0][0];
    for (Step t = 0; t < 6; ++t) {
      relay->run_step(t);
      for (Rank hops = 0; hops < 4; ++hops)
        EXPECT_EQ(relay->model(hops)[0] != start, t >= std::max<Rank>(0, overlap ? hops : hops - 1))
            << "step " << t << ", " << hops << " hops, overlap " << overlap;
    }
    EXPECT_EQ(relay->x[3], relay->x[0]);
  }
}

TEST(DenseTest, HalvesAreThoseOfTheFormat) {
  EXPECT_EQ(as_half(1 + 0x1p-11L), 1);  // ties to even
  EXPECT_EQ(as_half(1 + 3 * 0x1p-11L), 1 + 0x1p-9L);
  EXPECT_EQ(as_half(-0.1L), -0x1.998p-4L);
  EXPECT_EQ(as_half(0x1.8p-25L), 0x1p-24L);  // the least number above zero
  EXPECT_EQ(as_half(65504), 65504);
}

TEST(DenseTest, CodesOfBytesAndLargestOnes) {
  const Vector x = {-1, 0, 0.25L, 1};
  const Vector bytes = as_uint8(x);
  for (std::size_t k = 0; k < x.size(); ++k) EXPECT_LT(std::abs(bytes[k] - x[k]), 1.01L / 255);
  EXPECT_NE(bytes[2], x[2]);
  EXPECT_EQ(as_top_k({1, -3, 3, 0.5L}, 2), (Vector{0, -3, 3, 0}));
  EXPECT_EQ(as_top_k({1, -3, 3, 0.5L}, 1), (Vector{0, -3, 0, 0}));
}

}  // namespace
}  // namespace starling::method
