#include "train/dense_training.h"

#include <map>

#include "starling/base/error.h"
#include "starling/base/spec.h"
#include "starling/topology/matrix.h"
#include "starling/topology/registry.h"

namespace starling::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

// The rank's local optimizer for (x, g): torch's, on one flat parameter.
class Local {
 public:
  explicit Local(const TestOptimizer& optimizer, std::int64_t count)
      : x_(torch::zeros({count}, torch::kFloat64).set_requires_grad(true)),
        optimizer_(optimizer.make({x_})) {}

  torch::Tensor updated(const torch::Tensor& x, const torch::Tensor& gradient) {
    const torch::NoGradGuard no_grad;
    x_.copy_(x);
    x_.mutable_grad() = gradient.clone();
    optimizer_->step();
    return x_.detach().clone();
  }

 private:
  torch::Tensor x_;
  OptimizerPtr optimizer_;
};

// AccumAdam, line by line as specified.
class Accumulating {
 public:
  Accumulating(double s, bool decoupled, double lr, double decay)
      : s_(s), decoupled_(decoupled), lr_(lr), decay_(decay) {}

  torch::Tensor updated(const torch::Tensor& z, torch::Tensor gradient) {
    if (!M_.defined()) M_ = V_ = b_ = torch::zeros_like(z);
    if (!decoupled_) gradient = gradient + decay_ * z;
    ++t_;
    const double folds = std::ceil(t_ / s_);
    const torch::Tensor m = 0.9 * M_ + 0.1 * gradient;
    const torch::Tensor v = 0.999 * V_ + 0.001 * gradient * gradient;
    const torch::Tensor base = decoupled_ ? (1 - lr_ * decay_) * z : z;
    b_ = b_ + gradient / s_;
    if (std::fmod(t_, s_) == 0) {
      M_ = 0.9 * M_ + 0.1 * b_;
      V_ = 0.999 * V_ + 0.001 * b_ * b_;
      b_ = torch::zeros_like(b_);
    }
    return base -
           lr_ * (m / (1 - std::pow(0.9, folds))) / (torch::sqrt(v / (1 - std::pow(0.999, folds))) + 1e-8);
  }

 private:
  double s_;
  bool decoupled_;
  double lr_, decay_;
  double t_ = 0;
  torch::Tensor M_, V_, b_;
};

class Play {
 public:
  explicit Play(const DenseRun& run) : run_(run), n_(static_cast<std::size_t>(run.size)) {
    for (std::size_t i = 0; i < n_; ++i) {
      const auto start = run.equal_start ? 0 : static_cast<std::int64_t>(i);
      networks_.push_back(make_network(run.network, start));
      x_.push_back(flat_parameters(*networks_[i]));
      locals_.emplace_back(local_optimizer(run.optimizer), x_[i].numel());
    }
  }

  Tensors play() {
    const Spec spec = parse_spec(run_.method);
    const double number = spec.arguments.empty() ? 1 : std::stod(spec.arguments[0].value.to_string());
    using Step_ = std::function<void(Step)>;
    const std::map<std::string, Step_> methods = {
        {"dsgd-awc", [&](Step t) { awc(t); }},
        {"dadam", [&](Step t) { awc(t); }},
        {"dsgd-atc", [&](Step t) { run_.topology == "ceca" ? ceca(t) : atc(mixing(t)); }},
        {"gossip-pga", [&](Step t) { atc(global_every(number, t) ? everybody() : mixing(t)); }},
        {"local-sgd", [&](Step t) { atc(global_every(number, t) ? everybody() : nobody()); }},
        {"allreduce-model", [&](Step) { atc(everybody()); }},
        {"allreduce", [&](Step t) { allreduce(t); }},
        {"parameter-server", [&](Step t) { allreduce(t); }},
        {"gradient-tracking", [&](Step t) { tracking(t); }},
        {"push-sum", [&](Step t) { push_sum(t); }},
        {"relay-sgd", [&](Step t) { relay(t); }},
        {"accum-adam", [&](Step t) { accumulating(t, number, false); }},
        {"accum-adamw", [&](Step t) { accumulating(t, number, true); }},
    };
    for (step_ = 0; step_ < run_.steps; ++step_) methods.at(spec.word)(step_);
    return run_.topology == "ceca" ? a_ : x_;
  }

 private:
  static bool global_every(double h, Step t) { return std::fmod(static_cast<double>(t) + 1, h) == 0; }
  torch::Tensor everybody() const {
    return torch::full({run_.size, run_.size}, 1.0 / run_.size, torch::kFloat64);
  }
  torch::Tensor nobody() const { return torch::eye(run_.size, torch::kFloat64); }
  torch::Tensor mixing(Step t) const { return weights_at(*make_schedule(run_.topology, run_.size, 0), t); }

  Tensors mixed(const torch::Tensor& weights, const Tensors& values) const {
    return torch::mm(weights, torch::stack(values)).unbind();
  }
  torch::Tensor gradient_at(std::size_t i, const torch::Tensor& x) {
    set_parameters(*networks_[i], x);
    networks_[i]->zero_grad();
    loss_of(*networks_[i], static_cast<Rank>(i), step_).backward();
    return flat_gradients(*networks_[i]).clone();
  }
  Tensors gradients() {
    Tensors all;
    for (std::size_t i = 0; i < n_; ++i) all.push_back(gradient_at(i, x_[i]));
    return all;
  }

  void awc(Step t) {
    const Tensors g = gradients();
    const Tensors z = mixed(mixing(t), x_);
    for (std::size_t i = 0; i < n_; ++i) x_[i] = locals_[i].updated(z[i], g[i]);
  }
  Tensors adapted() {
    const Tensors g = gradients();
    Tensors y;
    for (std::size_t i = 0; i < n_; ++i) y.push_back(locals_[i].updated(x_[i], g[i]));
    return y;
  }
  void atc(const torch::Tensor& weights) { x_ = mixed(weights, adapted()); }

  void allreduce(Step) {
    const torch::Tensor mean = torch::stack(gradients()).mean(0);
    for (std::size_t i = 0; i < n_; ++i) x_[i] = locals_[i].updated(x_[i], mean);
  }

  void tracking(Step t) {
    const Tensors g = gradients();
    if (t == 0) y_ = g;
    for (std::size_t i = 0; i < n_ && t > 0; ++i) y_[i] = y_[i] + g[i] - old_[i];
    old_ = g;
    for (std::size_t i = 0; i < n_; ++i) x_[i] = locals_[i].updated(x_[i], y_[i]);
    x_ = mixed(mixing(t), x_);
    y_ = mixed(mixing(t), y_);
  }

  void push_sum(Step t) {
    if (t == 0) {
      u_ = x_;
      p_ = torch::ones({run_.size, 1}, torch::kFloat64);
    }
    const Tensors y = adapted();
    for (std::size_t i = 0; i < n_; ++i) u_[i] = u_[i] + y[i] - x_[i];
    u_ = mixed(mixing(t), u_);
    p_ = torch::mm(mixing(t), p_);
    for (std::size_t i = 0; i < n_; ++i) x_[i] = u_[i] / p_[static_cast<std::int64_t>(i)];
  }

  // m_ij = x_i + the messages that i received from the others one step ago; x_i = S / c.
  void relay(Step t) {
    const torch::Tensor tree = mixing(0);
    const auto neighbors = [&](std::size_t i, std::size_t j) {
      return i != j && tree[static_cast<std::int64_t>(i)][static_cast<std::int64_t>(j)].item<double>() != 0;
    };
    const Tensors y = adapted();
    using Message = std::pair<torch::Tensor, double>;
    std::map<std::pair<std::size_t, std::size_t>, Message> sent;
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j) {
        if (!neighbors(i, j)) continue;
        Message message = {y[i], 1};
        for (std::size_t k = 0; k < n_ && t > 0; ++k)
          if (k != j && neighbors(i, k)) {
            message.first = message.first + sent_.at({k, i}).first;
            message.second += sent_.at({k, i}).second;
          }
        sent[{i, j}] = message;
      }
    for (std::size_t i = 0; i < n_; ++i) {
      torch::Tensor sum = y[i];
      double count = 1;
      for (std::size_t j = 0; j < n_; ++j)
        if (neighbors(j, i)) {
          sum = sum + sent.at({j, i}).first;
          count += sent.at({j, i}).second;
        }
      x_[i] = sum / count;
    }
    sent_ = sent;
  }

  // lr 0.02 and the betas of the optimizers "adam" and "adamw".
  void accumulating(Step t, double s, bool decoupled) {
    if (accumulating_.empty())
      accumulating_.assign(n_, Accumulating(s, decoupled, 0.02, decoupled ? 0.1 : 0.01));
    const Tensors g = gradients();
    const Tensors z = mixed(mixing(t), x_);
    for (std::size_t i = 0; i < n_; ++i) x_[i] = accumulating_[i].updated(z[i], g[i]);
  }

  void ceca(Step t) {
    if (t == 0) a_ = b_ = x_;
    const SchedulePtr schedule = make_schedule("ceca", run_.size, 0);
    bool at_a = run_.size == 1;  // with one rank there is nothing to send
    for (const Destination& destination : schedule->exchange(t, 0).destinations)
      if (destination.lane == Lane::a) at_a = true;
    for (std::size_t i = 0; i < n_; ++i) {
      const torch::Tensor at = at_a ? a_[i] : b_[i];
      const torch::Tensor increment = locals_[i].updated(at, gradient_at(i, at)) - at;
      a_[i] = a_[i] + increment;
      b_[i] = b_[i] + increment;
    }
    const RoundMatrix round(*schedule, t);
    const auto into = [&](Lane lane, const Tensors& own) {
      Tensors sums;
      for (const torch::Tensor& value : own) sums.push_back(torch::zeros_like(value));
      for (const Entry& entry : round.entries(lane)) {
        // The diagonal holds the block's own weight.
        const bool itself = entry.receiver == entry.sender;
        const auto sender = static_cast<std::size_t>(entry.sender);
        const torch::Tensor& from = itself ? own[sender] : (entry.lane == Lane::a ? a_ : b_)[sender];
        sums[static_cast<std::size_t>(entry.receiver)] += entry.weight * from;
      }
      return sums;
    };
    const Tensors next_a = into(Lane::a, a_);
    b_ = into(Lane::b, b_);
    a_ = next_a;
  }

  DenseRun run_;
  std::size_t n_;
  Step step_ = 0;
  std::vector<NetworkPtr> networks_;
  std::vector<Local> locals_;
  std::vector<Accumulating> accumulating_;
  Tensors x_, y_, old_, u_, a_, b_;
  torch::Tensor p_;
  std::map<std::pair<std::size_t, std::size_t>, std::pair<torch::Tensor, double>> sent_;
};

}  // namespace

torch::Tensor weights_at(const Schedule& schedule, Step step) {
  torch::Tensor weights = torch::zeros({schedule.size(), schedule.size()}, torch::kFloat64);
  for (const Entry& entry : RoundMatrix(schedule, step).entries())
    weights[entry.receiver][entry.sender] += entry.weight;
  return weights;
}

std::vector<torch::Tensor> train_densely(const DenseRun& run) {
  return Play(run).play();
}

}  // namespace starling::train
