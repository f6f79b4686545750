#include "method/dense.h"

// Asynchronous methods with ranks of equal speed: what a rank sends at the end of a step is in flight during
// the next step and is used in the one after. Gradients are taken after the mixing.

namespace starling::method {
namespace {

/// Mixes with the neighbors' blocks of the step before last; before those arrive, with this rank's start
/// instead.
class DenseWinPut : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (t == 0) start_ = x;
    const Matrix w = round(t);
    std::vector<Vector> z;
    for (std::size_t i = 0; i < n(); ++i) {
      z.push_back(w[i][i] * x[i]);
      for (std::size_t j = 0; j < n(); ++j)
        if (j != i) z[i] = z[i] + w[i][j] * (older_.empty() ? start_[i] : older_[j]);
    }
    x = z;
    x = all_updated();
    older_ = last_;
    last_ = x;
  }
  std::vector<Vector> start_, last_, older_;
};

/// Shares of u and p that neighbors gave away. U moves u / p, so a rank with a small p has a small weight.
class DenseAsyncPushSum : public OnSchedule {
  using OnSchedule::OnSchedule;
  struct Sums {
    std::vector<Vector> u, p;
  };
  void step(Step t) override {
    if (t == 0) {
      own_ = {x, std::vector<Vector>(n(), Vector(1, 1))};
      arriving_ = traveling_ = {zeros(), std::vector<Vector>(n(), Vector(1))};
    }
    for (std::size_t i = 0; i < n(); ++i) {
      own_.u[i] = own_.u[i] + arriving_.u[i];
      own_.p[i] = own_.p[i] + arriving_.p[i];
      x[i] = 1 / own_.p[i][0] * own_.u[i];
    }
    x = all_updated();
    for (std::size_t i = 0; i < n(); ++i) own_.u[i] = own_.p[i][0] * x[i];
    const Matrix c = round(t);
    arriving_ = traveling_;
    traveling_ = {mixed(c, own_.u), mixed(c, own_.p)};
    for (std::size_t i = 0; i < n(); ++i) {
      own_.u[i] = c[i][i] * own_.u[i];
      own_.p[i] = c[i][i] * own_.p[i];
      traveling_.u[i] = traveling_.u[i] - own_.u[i];
      traveling_.p[i] = traveling_.p[i] - own_.p[i];
    }
  }
  Sums own_, arriving_, traveling_;
};

/// c = copy(x), S = allreduce(c); x += S/n - c when S is complete; then the next all-reduce starts.
class DenseAsyncAverage : public Dense {
  using Dense::Dense;
  void step(Step) override {
    if (!copies_.empty()) {
      const Vector mean = mean_of(copies_);
      for (std::size_t i = 0; i < n(); ++i) x[i] = x[i] + mean - copies_[i];
    }
    copies_ = x;
    x = all_updated();
  }
  std::vector<Vector> copies_;
};

}  // namespace

DenseTable dense_async() {
  return {{"win-put", make_dense_as<DenseWinPut>},
          {"async-push-sum", make_dense_as<DenseAsyncPushSum>},
          {"async-average", make_dense_as<DenseAsyncAverage>}};
}

}  // namespace starling::method
