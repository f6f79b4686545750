#include "starling/simulate/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <queue>
#include <thread>

#include "starling/base/error.h"
#include "starling/base/stopwatch.h"
#include "starling/flock/relay.h"
#include "starling/method/drive.h"
#include "starling/method/registry.h"
#include "starling/simulate/thread_pool.h"
#include "starling/simulate/training_node.h"

namespace starling::simulate {
namespace {

using Clock = std::chrono::steady_clock;

/// One training run, by the clock of the steps or of the nodes.
class Training {
 public:
  Training(const Objective& objective, const TrainingOptions& options);
  TrainingResult run();

 private:
  SchedulePtr find_schedule() const;
  void make_nodes();
  void run_in_step();
  void run_by_events();
  bool go_on(Step step);
  /// Called when all nodes have made `steps` steps.
  void note(Step step);
  /// Called when an asynchronous node has made `step`, which is observed when the last node has made it.
  void note_own(std::size_t node, Step step);
  void read_models(std::vector<double>& models);
  void add_point(Step step);
  void look_for_divergence(const TrainingPoint& point);
  std::size_t count() const { return nodes_.size(); }

  const Objective& objective_;
  const TrainingOptions& options_;
  MethodPtr method_;
  SchedulePtr schedule_;
  std::unique_ptr<SimulatedNetwork> network_;
  std::vector<std::unique_ptr<TrainingNode>> nodes_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<double> models_;
  double least_ = 0;
  std::vector<double> minimizer_;
  TrainingResult result_;
  double watching_ = 0;  // seconds spent on points and observers
  Step next_point_ = 0;
  std::map<Step, std::pair<std::size_t, std::vector<double>>> unobserved_;
};

Training::Training(const Objective& objective, const TrainingOptions& options)
    : objective_(objective), options_(options), method_(make_method(options.method)) {
  if (options.precision != DType::float32 && options.precision != DType::float64)
    throw InvalidArgument(
        fmt::format("the precision is float32 or float64, not {}", name(options.precision)));
  if (!(options.drop >= 0 && options.drop < 1))
    throw InvalidArgument(
        fmt::format("a share of {} of the messages cannot be lost: it is from 0 to below 1", options.drop));
  if (!(options.decay > 0) || options.decay_every < 0)
    throw InvalidArgument(
        fmt::format("the learning rate is divided by {} every {} steps: by more than 0, every 1 or more",
                    options.decay, options.decay_every));
  if (!(options.lr >= 0 && std::isfinite(options.lr)))
    throw InvalidArgument(fmt::format("lr is a finite number of at least 0, not {}", options.lr));
  check_optimizer(*method_, options.optimizer);
  check_losses(*method_, options.drop > 0);
  schedule_ = find_schedule();
  const RelayRule relay = method_->relay_rule();
  if (relay) check_relay_trees(*schedule_);
  network_ = std::make_unique<SimulatedNetwork>(
      objective.nodes(),
      NetworkOptions{schedule_, relay, options.time, options.drop, options.seed, method_->needs().one_sided});
  result_.method = options.method;
  if (schedule_) {
    result_.topology = schedule_->name();
    result_.warning = method_->warning(*schedule_);
  }
  models_.resize(static_cast<std::size_t>(objective.nodes()) * objective.dim());
  if (const auto least = objective.least_value()) {
    least_ = *least;
    result_.gap_known = true;
  }
  if (auto minimizer = objective.minimizer()) minimizer_ = std::move(*minimizer);
}

SchedulePtr Training::find_schedule() const {
  const MethodSetting setting{objective_.nodes(), options_.time.ranks_per_host};
  if (!options_.schedule) return schedule_for(*method_, setting, options_.topology, options_.seed);
  if (options_.schedule->size() != objective_.nodes())
    throw InvalidArgument(fmt::format("{} is for {} nodes, but the problem has {}", options_.schedule->name(),
                                      options_.schedule->size(), objective_.nodes()));
  if (!method_->needs_schedule()) return nullptr;
  method_->check(*options_.schedule);
  return options_.schedule;
}

void Training::make_nodes() {
  for (Rank rank = 0; rank < objective_.nodes(); ++rank)
    nodes_.push_back(std::make_unique<TrainingNode>(objective_, options_, *network_, rank, options_.method));
}

bool Training::go_on(Step step) {
  return !result_.diverged && (!options_.progress || options_.progress(step));
}

void Training::note(Step step) {
  const auto from = Clock::now();
  const bool point = step >= next_point_ || step == options_.steps;
  if (options_.observe || point) read_models(models_);
  if (options_.observe && (!method_->asynchronous() || step == 0))
    options_.observe(step, SimulatedModels(models_, objective_.dim()));
  if (point) add_point(step);
  watching_ += seconds_since(from);
}

void Training::read_models(std::vector<double>& models) {
  const std::size_t dim = objective_.dim();
  for (std::size_t i = 0; i < count(); ++i) nodes_[i]->read_model(std::span(models).subspan(i * dim, dim));
}

void Training::note_own(std::size_t node, Step step) {
  if (!options_.observe) return;
  const std::size_t dim = objective_.dim();
  auto& [made, models] = unobserved_[step];
  models.resize(models_.size());
  nodes_[node]->read_model(std::span(models).subspan(node * dim, dim));
  if (++made < count()) return;
  options_.observe(step, SimulatedModels(models, dim));
  unobserved_.erase(step);
}

void Training::add_point(Step step) {
  const std::size_t dim = objective_.dim();
  std::vector<double> mean(dim);
  for (std::size_t i = 0; i < count(); ++i)
    for (std::size_t k = 0; k < dim; ++k) mean[k] += models_[i * dim + k];
  for (double& value : mean) value /= static_cast<double>(count());
  TrainingPoint point;
  point.step = step;
  double squares = 0;
  for (std::size_t i = 0; i < models_.size(); ++i) squares += std::pow(models_[i] - mean[i % dim], 2);
  point.consensus = std::sqrt(squares / static_cast<double>(count()));
  if (!minimizer_.empty()) {
    double away = 0;
    for (std::size_t k = 0; k < dim; ++k) away += std::pow(mean[k] - minimizer_[k], 2);
    point.distance = std::sqrt(away + point.consensus * point.consensus);
  }
  point.gap = objective_.value(mean) - least_;
  point.gradient_norm = objective_.mean_gradient_norm(mean);
  double age = 0;
  std::uint64_t used = 0;
  for (const auto& node : nodes_) {
    point.bytes += static_cast<double>(node->channel().bytes_sent());
    point.seconds = std::max(point.seconds, node->channel().clock());
    const Staleness staleness = node->driver().staleness();
    age += staleness.sum;
    used += staleness.used;
    result_.oldest = std::max(result_.oldest, staleness.oldest);
  }
  point.staleness = used == 0 ? 0 : age / static_cast<double>(used);
  result_.curve.push_back(point);
  result_.mean_model = mean;
  look_for_divergence(point);
  next_point_ = step + std::max<Step>(1, (options_.steps + options_.points - 1) / options_.points);
}

void Training::look_for_divergence(const TrainingPoint& point) {
  // Some objectives have no value, so their gap is never a number.
  const bool gap_is_fine = std::isfinite(point.gap) || !std::isfinite(result_.curve.front().gap);
  if (gap_is_fine && std::isfinite(point.consensus)) return;
  // NaN ranks above every number.
  const auto size = [](double value) { return std::isfinite(value) ? std::abs(value) : INFINITY; };
  const auto largest = std::ranges::max_element(models_, {}, size);
  result_.diverged = Divergence{
      point.step, static_cast<Rank>(static_cast<std::size_t>(largest - models_.begin()) / objective_.dim())};
}

// All nodes make the same step; messages of one phase arrive in the next.
void Training::run_in_step() {
  std::vector<char> done(count());
  for (Step step = 0; step < options_.steps && go_on(step); ++step) {
    // Computed separately, so that the samples stream through the cache undisturbed.
    const auto from = Clock::now();
    pool_->each(count(), [&](std::size_t i) {
      nodes_[i]->begin();
      nodes_[i]->compute();
    });
    result_.gradient_seconds += seconds_since(from);
    pool_->each(count(), [&](std::size_t i) { done[i] = nodes_[i]->try_finish() ? 1 : 0; });
    while (std::find(done.begin(), done.end(), 0) != done.end()) {
      network_->deliver();
      pool_->each(count(), [&](std::size_t i) {
        if (done[i] == 0) done[i] = nodes_[i]->try_finish() ? 1 : 0;
      });
    }
    network_->deliver();
    note(step + 1);
  }
}

// Asynchronous nodes act at times of their own clocks; at equal times nodes that end a step come first, so
// that nodes of equal speed without delays run in lock-step.
void Training::run_by_events() {
  struct Event {
    double time;
    bool begins;
    Rank node;
    auto operator<=>(const Event&) const = default;
  };
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  std::vector<Rank> waiting;
  std::int64_t total = 0;
  Step noted = 0;
  const auto finish = [&](Rank rank) {
    TrainingNode& node = *nodes_[static_cast<std::size_t>(rank)];
    if (!node.try_finish()) return false;
    ++total;
    note_own(static_cast<std::size_t>(rank), node.steps());
    if (node.steps() < options_.steps) events.push({node.channel().clock(), true, rank});
    return true;
  };
  for (Rank rank = 0; rank < network_->size(); ++rank) events.push({0, true, rank});
  while (!events.empty()) {
    const Event event = events.top();
    events.pop();
    TrainingNode& node = *nodes_[static_cast<std::size_t>(event.node)];
    if (event.begins) {
      node.begin();
      const auto from = Clock::now();
      node.compute();
      result_.gradient_seconds += seconds_since(from);
      events.push({node.channel().clock(), false, event.node});
    } else {
      if (!finish(event.node)) waiting.push_back(event.node);
      // Other nodes may have waited for this.
      std::vector<Rank> still;
      for (const Rank rank : std::exchange(waiting, {}))
        if (rank == event.node || !finish(rank)) still.push_back(rank);
      waiting = std::move(still);
    }
    while (noted < options_.steps && total >= (noted + 1) * network_->size()) note(++noted);
    if (result_.diverged || (event.node == 0 && !event.begins && !go_on(noted))) return;
  }
}

TrainingResult Training::run() {
  make_nodes();
  note(0);
  const auto from = Clock::now();
  watching_ = 0;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const bool events = method_->asynchronous();
  const int threads = events ? 1 : (options_.threads > 0 ? options_.threads : cores);
  pool_ = std::make_unique<ThreadPool>(threads);
  events ? run_by_events() : run_in_step();
  result_.wall_seconds = seconds_since(from) - watching_;
  result_.bytes = result_.curve.back().bytes;
  result_.modelled_seconds = result_.curve.back().seconds;
  result_.models = std::move(models_);
  return std::move(result_);
}

}  // namespace

std::string Divergence::text() const {
  return fmt::format("node {}'s model was not finite at step {}", node, step);
}

TrainingResult run_training(const Objective& objective, const TrainingOptions& options) {
  return Training(objective, options).run();
}

}  // namespace starling::simulate
