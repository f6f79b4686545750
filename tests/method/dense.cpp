#include "method/dense.h"

#include <cmath>
#include <map>
#include <stdexcept>

#include "starling/topology/registry.h"

namespace starling {

Matrix matrix_of(const Schedule& schedule, Step step) {
  const auto n = static_cast<std::size_t>(schedule.size());
  Matrix means(n, Vector(n));
  Matrix product(n, Vector(n));
  for (std::size_t i = 0; i < n; ++i) {
    const Group group = schedule.exchange(step, static_cast<Rank>(i)).group;
    if (group.size() < 2) means[i][i] = 1;
    for (std::int64_t k = 0; group.size() > 1 && k < group.size(); ++k)
      means[i][static_cast<std::size_t>(group[k])] = 1 / static_cast<Number>(group.size());
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Exchange exchange = schedule.exchange(step, static_cast<Rank>(i));
    Vector weights(n);
    weights[i] += exchange.self_weight;
    for (const Source& source : exchange.sources)
      weights[static_cast<std::size_t>(source.rank)] += source.weight;
    product[i] = mixed({weights}, means, 0);
  }
  return product;
}

Vector mixed(const Matrix& w, const std::vector<Vector>& x, std::size_t i) {
  Vector sum(x[0].size());
  for (std::size_t j = 0; j < x.size(); ++j)
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += w[i][j] * x[j][k];
  return sum;
}

Number LocalStep::adam_move(Number m, Number v, long t) const {
  const Number mean = m / (1 - std::pow(static_cast<Number>(rule_.beta1), t));
  const Number square = v / (1 - std::pow(static_cast<Number>(rule_.beta2), t));
  return rule_.lr * mean / (std::sqrt(square) + rule_.eps);
}

Vector LocalStep::operator()(const Vector& y, const Vector& gradient) {
  for (Vector* state : {&m_, &v_, &sum_}) state->resize(y.size());
  ++t_;
  const Number b1 = rule_.beta1;
  const Number b2 = rule_.beta2;
  Vector x(y.size());
  for (std::size_t k = 0; k < y.size(); ++k) {
    const Number g = gradient[k] + (rule_.decoupled ? 0 : rule_.weight_decay * y[k]);
    const Number from =
        rule_.decoupled ? y[k] - static_cast<Number>(rule_.lr) * rule_.weight_decay * y[k] : y[k];
    if (rule_.kind == "sgd") {
      m_[k] = t_ == 1 ? g : rule_.momentum * m_[k] + g;
      x[k] = from - rule_.lr * (rule_.nesterov ? g + rule_.momentum * m_[k] : m_[k]);
    } else if (rule_.kind == "adam") {
      m_[k] = b1 * m_[k] + (1 - b1) * g;
      v_[k] = b2 * v_[k] + (1 - b2) * g * g;
      x[k] = from - adam_move(m_[k], v_[k], t_);
    } else {
      const long folds = (t_ + rule_.s - 1) / rule_.s;
      x[k] = from - adam_move(b1 * m_[k] + (1 - b1) * g, b2 * v_[k] + (1 - b2) * g * g, folds);
      sum_[k] += g / static_cast<Number>(rule_.s);
      if (t_ % rule_.s == 0) {
        m_[k] = b1 * m_[k] + (1 - b1) * sum_[k];
        v_[k] = b2 * v_[k] + (1 - b2) * sum_[k] * sum_[k];
        sum_[k] = 0;
      }
    }
  }
  return x;
}

Dense::Dense(const Problem& problem, const LocalRule& rule) : problem_(problem) {
  for (Rank rank = 0; rank < problem.n; ++rank) {
    x.push_back(problem.start_of<Number>(rank));
    local_.emplace_back(rule);
  }
}

void Dense::run_step(Step t) {
  skipped_.clear();
  for (Rank rank = 0; rank < problem_.n; ++rank) skipped_.push_back(skips(rank, t));
  step(t);
}

Vector Dense::gradient(std::size_t i) const {
  Vector g(problem_.count);
  problem_.gradient(static_cast<Rank>(i), x[i].data(), g.data());
  return g;
}

Vector Dense::updated(std::size_t i, const Vector& from, const Vector& g) {
  return takes_part(i) ? local_[i](from, g) : from;
}

Vector Dense::mean_of(const std::vector<Vector>& vectors) const {
  Vector mean(problem_.count);
  for (const Vector& one : vectors)
    for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += one[k] / static_cast<Number>(vectors.size());
  return mean;
}

Vector Dense::mean_gradient() const {
  std::vector<Vector> there;
  for (std::size_t i = 0; i < n(); ++i)
    if (takes_part(i)) there.push_back(gradient(i));
  return there.empty() ? Vector() : mean_of(there);
}

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
 public:
  DenseLocal(const Problem& problem, const LocalRule& rule, Step tau) : Dense(problem, rule), tau_(tau) {}

 private:
  void step(Step t) override {
    for (std::size_t i = 0; i < n(); ++i) x[i] = updated(i, x[i], gradient(i));
    if ((t + 1) % tau_ != 0) return;
    const Vector mean = mean_of(x);
    for (Vector& one : x) one = mean;
  }
  Step tau_;
};

/// What follows a schedule; every h-th round (of h > 1) is the global mean.
class OnSchedule : public Dense {
 public:
  OnSchedule(const Problem& problem, const LocalRule& rule, const std::string& topology, Step h)
      : Dense(problem, rule), schedule_(make_schedule(topology, problem.n)), h_(h) {}

 protected:
  Matrix round(Step t) const {
    if (h_ > 1 && (t + 1) % h_ == 0) return Matrix(n(), Vector(n(), 1 / static_cast<Number>(n())));
    return matrix_of(*schedule_, t);
  }
  std::vector<Vector> all_mixed(const Matrix& w, const std::vector<Vector>& vectors) const {
    std::vector<Vector> result;
    for (std::size_t i = 0; i < n(); ++i) result.push_back(mixed(w, vectors, i));
    return result;
  }
  SchedulePtr schedule_;

 private:
  Step h_;
};

class DenseAtc : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    std::vector<Vector> y;
    for (std::size_t i = 0; i < n(); ++i) y.push_back(updated(i, x[i], gradient(i)));
    x = all_mixed(round(t), y);
  }
};

class DenseAwc : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    std::vector<Vector> z = all_mixed(round(t), x);
    for (std::size_t i = 0; i < n(); ++i) z[i] = updated(i, z[i], gradient(i));
    x = z;
  }
};

class DenseTracking : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {
    if (y_.empty()) y_ = old_ = std::vector<Vector>(n(), Vector(problem_.count));
    std::vector<Vector> moved;
    for (std::size_t i = 0; i < n(); ++i) {
      if (takes_part(i)) {  // who has no gradient has the last one still
        const Vector g = gradient(i);
        for (std::size_t k = 0; k < g.size(); ++k) y_[i][k] += g[k] - old_[i][k];
        old_[i] = g;
      }
      moved.push_back(updated(i, x[i], y_[i]));
    }
    const Matrix w = round(t);
    x = all_mixed(w, moved);
    y_ = all_mixed(w, y_);
  }
  std::vector<Vector> y_, old_;
};

class DensePushSum : public OnSchedule {
  using OnSchedule::OnSchedule;
  void step(Step t) override {  // x is z
    if (u_.empty()) {
      u_ = x;
      p_.assign(n(), Vector(1, 1));
    }
    for (std::size_t i = 0; i < n(); ++i) {
      const Vector moved = updated(i, x[i], gradient(i));
      for (std::size_t k = 0; k < moved.size(); ++k) u_[i][k] += moved[k] - x[i][k];
      x[i] = moved;  // where nothing comes and nothing was kept, p is 0
    }
    const Matrix c = round(t);
    u_ = all_mixed(c, u_);
    p_ = all_mixed(c, p_);
    for (std::size_t i = 0; i < n(); ++i)
      for (std::size_t k = 0; k < problem_.count && p_[i][0] > 0; ++k) x[i][k] = u_[i][k] / p_[i][0];
  }
  std::vector<Vector> u_, p_;
};

/// From the definition of the rounds, not from the library's schedule. `pairs`: CECA-1P.
class DenseCeca : public Dense {
 public:
  DenseCeca(const Problem& problem, const LocalRule& rule, long k, bool pairs, Step h)
      : Dense(problem, rule), k_(k), pairs_(pairs), h_(h) {
    for (long rest = problem.n - 1; rest > 0; rest /= k + 1) digits_.insert(digits_.begin(), rest % (k + 1));
    if (digits_.empty()) digits_ = {-1};  // nothing to do
    a_ = b_ = x;
  }
  const Vector& model(Rank rank) const override { return a_[at(rank)]; }

 private:
  long digit(std::size_t phase) const { return digits_[phase % digits_.size()]; }

  void step(Step t) override {
    const bool global = h_ > 1 && (t + 1) % h_ == 0;
    const auto phase = static_cast<std::size_t>(h_ > 1 ? t % h_ : t);
    const bool evaluate_a = global || digit(phase) != 0;
    for (std::size_t i = 0; i < n(); ++i) {
      x[i] = evaluate_a ? a_[i] : b_[i];
      const Vector moved = updated(i, x[i], gradient(i));
      for (std::size_t k = 0; k < moved.size(); ++k) {
        a_[i][k] += moved[k] - x[i][k];
        b_[i][k] += moved[k] - x[i][k];
      }
    }
    if (global) {
      a_ = std::vector<Vector>(n(), mean_of(a_));
      b_ = std::vector<Vector>(n(), mean_of(b_));
    } else if (digit(phase) >= 0) {
      round(phase);
    }
  }

  void round(std::size_t phase) {
    m_ = phase % digits_.size() == 0 ? 0 : m_;
    const long d = digit(phase);
    const long next = (k_ + 1) * m_ + d;
    std::vector<Vector> a(n()), b(n());
    for (std::size_t i = 0; i < n(); ++i) {
      Vector heard_a(problem_.count), heard_b(problem_.count);
      const auto hear = [&](Vector& sum, const std::vector<Vector>& of, long from) {
        const auto size = static_cast<long>(n());
        const Vector& one = of[static_cast<std::size_t>((from % size + size) % size)];
        for (std::size_t k = 0; k < one.size(); ++k) sum[k] += one[k];
      };
      const auto self = static_cast<long>(i);
      if (pairs_) {
        hear(d == 1 ? heard_a : heard_b, d == 1 ? a_ : b_,
             self % 2 == 1 ? self + 2 * m_ + 1 : self - 2 * m_ - 1);
      } else {
        for (long j = 1; j <= d; ++j) hear(heard_a, a_, self - j * (m_ + 1));
        for (long j = 1; j <= k_ - d && m_ > 0; ++j)
          hear(heard_b, b_, self - ((d + 1) * (m_ + 1) - 1 + (j - 1) * m_));
      }
      const auto m = static_cast<Number>(m_);
      for (std::size_t k = 0; k < problem_.count; ++k) {
        a[i].push_back(((m + 1) * (a_[i][k] + heard_a[k]) + m * heard_b[k]) / static_cast<Number>(next + 1));
        b[i].push_back(((m + 1) * heard_a[k] + m * (b_[i][k] + heard_b[k])) / static_cast<Number>(next));
      }
    }
    a_ = a;
    b_ = b;
    m_ = next;
  }

  long k_;
  bool pairs_;
  Step h_;
  std::vector<long> digits_;
  long m_ = 0;
  std::vector<Vector> a_, b_;
};

class DenseRelay : public Dense {
 public:
  DenseRelay(const Problem& problem, const LocalRule& rule, const std::string& topology, std::string missing)
      : Dense(problem, rule),
        schedule_(make_schedule(topology, problem.n)),
        missing_(std::move(missing)),
        reference_(x),
        heard_(static_cast<std::size_t>(schedule_->period())) {}

 private:
  struct Message {
    Vector sum;
    Number count = 0;
  };
  using Link = std::pair<std::size_t, std::size_t>;  // from, to

  static void add(Message& to, const Vector& sum, Number count) {
    for (std::size_t k = 0; k < sum.size(); ++k) to.sum[k] += sum[k];
    to.count += count;
  }

  void step(Step) override {
    std::vector<Vector> y;
    for (std::size_t i = 0; i < n(); ++i) y.push_back(updated(i, x[i], gradient(i)));
    const auto trees = heard_.size();
    for (std::size_t tree = 0; tree < trees; ++tree) relay(tree, y, trees);
  }

  // Each tree has an equal, contiguous part of the coordinates.
  void relay(std::size_t tree, const std::vector<Vector>& y, std::size_t trees) {
    std::vector<std::vector<std::size_t>> around(n());
    for (std::size_t i = 0; i < n(); ++i)
      for (const Source& source : schedule_->exchange(static_cast<Step>(tree), static_cast<Rank>(i)).sources)
        around[i].push_back(at(source.rank));
    std::map<Link, Message> said;
    for (std::size_t i = 0; i < n(); ++i)
      for (const std::size_t j : around[i]) {
        Message message{y[i], 1};
        for (const std::size_t k : around[i])
          if (const auto found = heard_[tree].find({k, i}); k != j && found != heard_[tree].end())
            add(message, found->second.sum, found->second.count);
        said[{i, j}] = message;
      }
    for (std::size_t i = 0; i < n(); ++i) {
      Message all{y[i], 1};
      for (const std::size_t j : around[i]) add(all, said[{j, i}].sum, said[{j, i}].count);
      const Number size = static_cast<Number>(n());
      for (std::size_t k = tree; k < problem_.count; k += trees) {  // even and odd ones
        const Number filled = missing_ == "own" ? y[i][k] : reference_[i][k];
        x[i][k] =
            missing_ == "counts" ? all.sum[k] / all.count : (all.sum[k] + (size - all.count) * filled) / size;
      }
    }
    heard_[tree] = said;
  }

  SchedulePtr schedule_;
  std::string missing_;
  std::vector<Vector> reference_;
  std::vector<std::map<Link, Message>> heard_;
};

}  // namespace

std::unique_ptr<Dense> make_dense(const DenseSetting& setting, const Problem& problem,
                                  const LocalRule& rule) {
  const std::string& topology = setting.topology;
  if (topology.rfind("ceca", 0) == 0)
    return std::make_unique<DenseCeca>(problem, rule, topology == "ceca(k=2)" ? 2 : 1, topology == "ceca-1p",
                                       setting.every);
  using Make = std::function<std::unique_ptr<Dense>()>;
  const auto scheduled = [&]<typename D>(std::type_identity<D>) -> Make {
    return [&] { return std::make_unique<D>(problem, rule, topology, setting.every); };
  };
  const Make atc = scheduled(std::type_identity<DenseAtc>{});
  const Make awc = scheduled(std::type_identity<DenseAwc>{});
  const Make local = [&] { return std::make_unique<DenseLocal>(problem, rule, setting.every); };
  const std::map<std::string, Make> all = {
      {"allreduce", [&] { return std::make_unique<DenseAllreduce>(problem, rule); }},
      {"parameter-server", [&] { return std::make_unique<DenseServer>(problem, rule); }},
      {"allreduce-model", local},
      {"local-sgd", local},
      {"dsgd-atc", atc},
      {"gossip-pga", atc},
      {"hierarchical", atc},
      {"dsgd-awc", awc},
      {"dadam", awc},
      {"accum-adam", awc},
      {"accum-adamw", awc},
      {"gradient-tracking", scheduled(std::type_identity<DenseTracking>{})},
      {"push-sum", scheduled(std::type_identity<DensePushSum>{})},
      {"relay-sgd", [&] { return std::make_unique<DenseRelay>(problem, rule, topology, setting.missing); }},
  };
  const auto found = all.find(setting.method);
  if (found == all.end()) throw std::invalid_argument("no dense " + setting.method);
  return found->second();
}

}  // namespace starling
