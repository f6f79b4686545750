#include <map>

#include "method/dense.h"
#include "starling/base/random.h"

// Methods that do not communicate in every step.

namespace starling::method {
namespace {

/// A rank sends a block again when it has moved far enough.
class DenseLag : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    const Number threshold = setting_.number("threshold", 0);
    const std::vector<Vector> y = all_updated();
    const Matrix w = round(t);
    for (std::size_t i = 0; i < n(); ++i) {
      x[i] = w[i][i] * y[i];
      for (std::size_t j = 0; j < n(); ++j) {
        if (j == i || w[i][j] == 0) continue;
        Vector& known = known_[{i, j}];
        if (known.empty() || !(norm(y[j] - known) < threshold)) known = y[j];
        x[i] = x[i] + w[i][j] * known;
      }
    }
  }
  std::map<std::pair<std::size_t, std::size_t>, Vector> known_;  // i's copy of j's block
};

/// Uses the mean of all ranks on `complete`, and (I + W) / 2 on other topologies.
class DenseProxSkip : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (h_.empty()) h_ = zeros();  // lr times h of the equations
    const Number p = setting_.number("p", 1);
    std::vector<Vector> hat = all_updated();
    for (std::size_t i = 0; i < n(); ++i) hat[i] = hat[i] + h_[i];
    x = hat;
    Random bit(static_cast<std::uint64_t>(setting_.steps("seed", 0)), static_cast<std::uint64_t>(t),
               stream::kProxSkip);
    if (!(bit.uniform() < static_cast<double>(p))) return;
    if (setting_.topology == "complete") {
      x = std::vector<Vector>(n(), mean_of(hat));
    } else {
      const std::vector<Vector> heard = mixed(round(rounds_++), hat);
      for (std::size_t i = 0; i < n(); ++i) x[i] = 0.5L * (hat[i] + heard[i]);
    }
    for (std::size_t i = 0; i < n(); ++i) h_[i] = h_[i] + p * (x[i] - hat[i]);
  }
  std::vector<Vector> h_;
  Step rounds_ = 0;
};

/// DiLoCo; and NoLoCo, where outer steps follow a schedule.
class DenseOuter : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (m_.empty()) {
      m_ = zeros();
      start_ = x;
    }
    x = all_updated();
    if ((t + 1) % setting_.steps("h", 1) != 0) return;
    std::vector<Vector> d;
    for (std::size_t i = 0; i < n(); ++i) d.push_back(start_[i] - x[i]);
    if (setting_.method.word == "diloco") {
      d = std::vector<Vector>(n(), mean_of(d));
    } else {
      const Matrix w = round(rounds_++);
      d = mixed(w, d);
      start_ = mixed(w, start_);
    }
    for (std::size_t i = 0; i < n(); ++i) {
      m_[i] = 0.9L * m_[i] + d[i];
      x[i] = start_[i] - 0.7L * (d[i] + 0.9L * m_[i]);
    }
    start_ = x;
  }
  std::vector<Vector> m_, start_;
  Step rounds_ = 0;
};

}  // namespace

DenseTable dense_lazy() {
  return {{"lag", make_dense_as<DenseLag>},
          {"proxskip", make_dense_as<DenseProxSkip>},
          {"diloco", make_dense_as<DenseOuter>},
          {"noloco", make_dense_as<DenseOuter>}};
}

}  // namespace starling::method
