#include "method/dense.h"

#include <cmath>
#include <stdexcept>

#include "starling/topology/registry.h"

namespace starling::method {

Vector operator+(Vector left, const Vector& right) {
  for (std::size_t k = 0; k < left.size(); ++k) left[k] += right[k];
  return left;
}

Vector operator-(Vector left, const Vector& right) {
  return std::move(left) + -1 * right;
}

Vector operator*(Number factor, Vector vector) {
  for (Number& value : vector) value *= factor;
  return vector;
}

Number norm(const Vector& vector) {
  Number squares = 0;
  for (const Number value : vector) squares += value * value;
  return std::sqrt(squares);
}

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

std::vector<Vector> mixed(const Matrix& w, const std::vector<Vector>& x) {
  std::vector<Vector> result;
  for (std::size_t i = 0; i < w.size(); ++i) result.push_back(mixed(w, x, i));
  return result;
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

DenseSetting::DenseSetting(const std::string& text, std::string on)
    : method(parse_spec(text)), topology(std::move(on)) {}

std::string DenseSetting::text(const std::string& key, const std::string& fallback) const {
  for (const Spec::Argument& argument : method.arguments)
    if (argument.key == key) return argument.value.to_string();
  return fallback;
}

Number DenseSetting::number(const std::string& key, Number fallback) const {
  const std::string given = text(key, "");
  return given.empty() ? fallback : std::stold(given);
}

Dense::Dense(const DenseSetting& setting, const Problem& problem, const LocalRule& rule)
    : setting_(setting), problem_(problem), rule_(rule) {
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

std::vector<Vector> Dense::all_updated() {
  std::vector<Vector> y;
  for (std::size_t i = 0; i < n(); ++i) y.push_back(updated(i, x[i], gradient(i)));
  return y;
}

OnSchedule::OnSchedule(const DenseSetting& setting, const Problem& problem, const LocalRule& rule)
    : Dense(setting, problem, rule), schedule_(make_schedule(setting.topology, problem.n)) {}

std::unique_ptr<Dense> make_dense(const DenseSetting& setting, const Problem& problem,
                                  const LocalRule& rule) {
  if (setting.topology.starts_with("ceca")) return make_dense_ceca(setting, problem, rule);
  for (const auto& table :
       {dense_averages(), dense_lazy(), dense_exact(), dense_relays(), dense_compressed(), dense_async()})
    if (const auto found = table.find(setting.method.word); found != table.end())
      return found->second(setting, problem, rule);
  throw std::invalid_argument("no dense " + setting.method.word);
}

}  // namespace starling::method
