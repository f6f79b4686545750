#include "method/dense.h"

// Methods that average models or gradients in every step, or in every h-th step.

namespace starling::method {
namespace {

class DenseAllreduce : public Dense {
  using Dense::Dense;
  void step(Step) override {
    const Vector g = mean_gradient();
    for (std::size_t i = 0; i < n() && !g.empty(); ++i) x[i] = local_[i](x[i], g);
  }
};

class DenseServer : public Dense {
  using Dense::Dense;
  void step(Step) override {
    const Vector g = mean_gradient();
    const Vector served = g.empty() ? x[0] : local_[0](x[0], g);
    for (Vector& one : x) one = served;
  }
};

class DenseLocal : public Dense {
  using Dense::Dense;
  void step(Step t) override {
    x = all_updated();
    const Step tau = setting_.steps("tau", setting_.method.word == "local-sgd" ? 8 : 1);
    if ((t + 1) % tau == 0) x = std::vector<Vector>(n(), mean_of(x));
  }
};

class DenseAtc : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    const Step h = setting_.steps("h", 0);
    const std::vector<Vector> y = all_updated();
    x = h > 0 && (t + 1) % h == 0 ? std::vector<Vector>(n(), mean_of(y)) : mixed(round(t), y);
  }
};

class DenseAwc : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    std::vector<Vector> z = mixed(round(t), x);
    for (std::size_t i = 0; i < n(); ++i) z[i] = updated(i, z[i], gradient(i));
    x = z;
  }
};

/// Momentum of the change that mixing and update made together, not of the own gradients.
class DenseQuasiGlobal : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (m_.empty()) m_ = zeros();
    const Number mu = setting_.number("mu", 0.9L);
    const Number lr = rule_.lr;
    std::vector<Vector> y;
    for (std::size_t i = 0; i < n(); ++i) {
      const Vector g = gradient(i);
      y.push_back(updated(i, x[i], g + mu * (mu * m_[i] + g)));
    }
    const std::vector<Vector> next = mixed(round(t), y);
    for (std::size_t i = 0; i < n(); ++i) m_[i] = mu * m_[i] + (1 - mu) / lr * (x[i] - next[i]);
    x = next;
  }
  std::vector<Vector> m_;
};

}  // namespace

DenseTable dense_averages() {
  return {{"allreduce", make_dense_as<DenseAllreduce>},
          {"parameter-server", make_dense_as<DenseServer>},
          {"allreduce-model", make_dense_as<DenseLocal>},
          {"local-sgd", make_dense_as<DenseLocal>},
          {"dsgd-atc", make_dense_as<DenseAtc>},
          {"gossip-pga", make_dense_as<DenseAtc>},
          {"hierarchical", make_dense_as<DenseAtc>},
          {"dsgd-awc", make_dense_as<DenseAwc>},
          {"dadam", make_dense_as<DenseAwc>},
          {"accum-adam", make_dense_as<DenseAwc>},
          {"accum-adamw", make_dense_as<DenseAwc>},
          {"quasi-global-momentum", make_dense_as<DenseQuasiGlobal>}};
}

}  // namespace starling::method
