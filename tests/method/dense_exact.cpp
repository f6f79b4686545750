#include "method/dense.h"

// Methods that correct the bias of averaging; and push-sum, which does not.

namespace starling::method {
namespace {

/// As published, with two old iterates; the update U replaces -lr g.
class DenseExtra : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    const Matrix w = round(t);
    std::vector<Vector> u, next;
    for (std::size_t i = 0; i < n(); ++i) u.push_back(updated(i, x[i], gradient(i)) - x[i]);
    for (std::size_t i = 0; i < n(); ++i) {
      if (old_x_.empty()) {
        next.push_back(mixed(w, x, i) + u[i]);
      } else {
        const Vector both = x[i] + mixed(w, x, i);
        const Vector before = 0.5L * (old_x_[i] + mixed(w, old_x_, i));
        next.push_back(both - before + u[i] - old_u_[i]);
      }
    }
    old_x_ = x;
    old_u_ = u;
    x = next;
  }
  std::vector<Vector> old_x_, old_u_;
};

/// D2, and exact diffusion, which is D2 with (I + W) / 2.
class DenseD2 : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (c_.empty()) c_ = zeros();
    Matrix w = round(t);
    if (setting_.method.word == "exact-diffusion")
      for (std::size_t i = 0; i < n(); ++i)
        for (std::size_t j = 0; j < n(); ++j) w[i][j] = (w[i][j] + (i == j ? 1 : 0)) / 2;
    const std::vector<Vector> y = all_updated();
    std::vector<Vector> corrected;
    for (std::size_t i = 0; i < n(); ++i) corrected.push_back(y[i] + c_[i]);
    x = mixed(w, corrected);
    for (std::size_t i = 0; i < n(); ++i) c_[i] = x[i] - y[i];
  }
  std::vector<Vector> c_;
};

/// y tracks the mean of all gradients, combined after the update (gradient-tracking) or beside it (DIGing).
class DenseTracking : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (y_.empty()) y_ = old_ = zeros();
    for (std::size_t i = 0; i < n(); ++i) {
      if (!takes_part(i)) continue;  // a rank without a gradient keeps its last one
      const Vector g = gradient(i);
      y_[i] = y_[i] + g - old_[i];
      old_[i] = g;
    }
    const Matrix w = round(t);
    std::vector<Vector> moved;
    for (std::size_t i = 0; i < n(); ++i) moved.push_back(updated(i, x[i], y_[i]));
    if (setting_.method.word == "gradient-tracking") {
      x = mixed(w, moved);
    } else {
      for (std::size_t i = 0; i < n(); ++i) moved[i] = moved[i] - x[i];
      x = mixed(w, x);
      for (std::size_t i = 0; i < n(); ++i) x[i] = x[i] + moved[i];
    }
    y_ = mixed(w, y_);
  }
  std::vector<Vector> y_, old_;
};

/// x is z. With tracked gradients it is push-DIGing.
class DensePushSum : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (u_.empty()) {
      u_ = x;
      p_.assign(n(), Vector(1, 1));
      y_ = old_ = zeros();
    }
    const bool tracks = setting_.method.word == "push-diging";
    for (std::size_t i = 0; i < n(); ++i) {
      const Vector g = gradient(i);
      if (takes_part(i)) y_[i] = tracks ? y_[i] + g - old_[i] : g;
      if (takes_part(i)) old_[i] = g;
      const Vector moved = updated(i, x[i], y_[i]);
      u_[i] = u_[i] + moved - x[i];
      x[i] = moved;  // if nothing arrives and nothing was kept, p is 0
    }
    const Matrix c = round(t);
    u_ = mixed(c, u_);
    p_ = mixed(c, p_);
    if (tracks) y_ = mixed(c, y_);
    for (std::size_t i = 0; i < n(); ++i)
      if (p_[i][0] > 0) x[i] = 1 / p_[i][0] * u_[i];
  }
  std::vector<Vector> u_, p_, y_, old_;
};

}  // namespace

DenseTable dense_exact() {
  return {{"extra", make_dense_as<DenseExtra>},
          {"exact-diffusion", make_dense_as<DenseD2>},
          {"d2", make_dense_as<DenseD2>},
          {"gradient-tracking", make_dense_as<DenseTracking>},
          {"diging", make_dense_as<DenseTracking>},
          {"push-sum", make_dense_as<DensePushSum>},
          {"push-diging", make_dense_as<DensePushSum>}};
}

}  // namespace starling::method
