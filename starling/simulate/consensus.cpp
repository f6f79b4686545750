#include "starling/simulate/consensus.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/simulate/circulant_decay.h"
#include "starling/topology/cost.h"
#include "starling/topology/mixer.h"

namespace starling::simulate {
namespace {

using Clock = std::chrono::steady_clock;

double elapsed_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<double> normal_start(Rank n, int dim, std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(n) * static_cast<std::size_t>(dim));
  Random random(seed, 0, stream::kConsensusStart);
  for (double& value : values) value = random.normal();
  return values;
}

// Keeps every point at first, then about fifty per factor of two, so that long runs stay small.
class Curve {
 public:
  explicit Curve(std::vector<ConsensusPoint>& points) : points_(points) {}
  void add(const ConsensusPoint& point, bool last = false) {
    if (point.step < next_ && !last) return;
    points_.push_back(point);
    next_ = point.step + 1 + point.step / 50;
  }

 private:
  std::vector<ConsensusPoint>& points_;
  Step next_ = 0;
};

// Fills in the result without running a step if the schedule is static and its slowest mode needs too many
// steps.
bool compute_instead(const SchedulePtr& schedule, std::span<const double> start,
                     const ConsensusOptions& options, ConsensusResult& result) {
  if (schedule->period() != 1 || schedule->random() || schedule->mixing() != Mixing::average) return false;
  const auto rho = schedule->known_rho();
  if (!rho || *rho <= 0 || *rho >= 1) return false;
  const double predicted = std::log(options.tolerance) / std::log(*rho);
  if (predicted <= static_cast<double>(options.max_steps)) return false;
  const double messages_per_step = step_cost(*schedule, 1).messages;
  Curve curve(result.curve);
  if (const auto* circulant = dynamic_cast<const Circulant*>(schedule.get())) {
    const CirculantDecay decay(*circulant, start, options.dim);
    result.outcome = ConsensusResult::Outcome::computed;
    result.steps = decay.steps_to(options.tolerance);
    for (Step t = 0; t < result.steps; t += 1 + t / 50)
      curve.add({t, decay.error(t), static_cast<double>(t) * messages_per_step});
    result.error = decay.error(result.steps);
  } else {
    result.outcome = ConsensusResult::Outcome::estimated;
    result.steps = static_cast<Step>(std::ceil(predicted));
    for (Step t = 0; t < result.steps; t += 1 + t / 50)
      curve.add({t, std::pow(*rho, static_cast<double>(t)), static_cast<double>(t) * messages_per_step});
    result.error = options.tolerance;
  }
  result.messages = static_cast<double>(result.steps) * messages_per_step;
  curve.add({result.steps, result.error, result.messages}, /*last=*/true);
  return true;
}

}  // namespace

const char* to_string(ConsensusResult::Outcome outcome) {
  switch (outcome) {
    case ConsensusResult::Outcome::reached:
      return "reached";
    case ConsensusResult::Outcome::computed:
      return "computed";
    case ConsensusResult::Outcome::estimated:
      return "estimated";
    case ConsensusResult::Outcome::stopped:
      return "stopped";
  }
  return "";
}

ConsensusResult run_consensus(const SchedulePtr& schedule, const ConsensusOptions& options) {
  if (!(options.tolerance > 0 && options.tolerance < 1))
    throw InvalidArgument(fmt::format("tolerance {} is not between 0 and 1", options.tolerance));
  if (options.dim < 1) throw InvalidArgument(fmt::format("dim {} is not at least 1", options.dim));
  if (options.max_steps < 1)
    throw InvalidArgument(fmt::format("max steps {} is not at least 1", options.max_steps));

  ConsensusResult result;
  result.topology = schedule->name();
  result.n = schedule->size();
  const auto start = normal_start(schedule->size(), options.dim, options.seed);
  const auto mean = mean_of(start, options.dim);
  const double scale = distance_to(start, mean);
  if (scale == 0) {  // one rank agrees with itself
    result.outcome = ConsensusResult::Outcome::reached;
    result.error = 0;
    result.curve.push_back({0, 0, 0});
    return result;
  }

  if (compute_instead(schedule, start, options, result)) return result;

  Mixer mixer(schedule, options.dim);
  mixer.start(start);
  Curve curve(result.curve);
  curve.add({0, 1, 0});
  auto begin = Clock::now();
  mixer.advance();
  result.seconds += elapsed_since(begin);

  constexpr double kReportEvery = 0.1;  // seconds
  auto reported = Clock::now();
  for (;;) {
    result.error = distance_to(mixer.values(), mean) / scale;
    result.messages += mixer.messages();
    result.steps = mixer.step();
    const bool reached = result.error <= options.tolerance;
    const bool last = reached || result.steps >= options.max_steps;
    curve.add({result.steps, result.error, result.messages}, last);
    if (reached) result.outcome = ConsensusResult::Outcome::reached;
    if (last) break;
    if (options.progress && (result.steps & 15) == 0 && elapsed_since(reported) > kReportEvery) {
      if (!options.progress(result.steps, result.error)) break;
      reported = Clock::now();
    }
    begin = Clock::now();
    mixer.advance();
    result.seconds += elapsed_since(begin);
  }
  result.steps_run = result.steps;
  return result;
}

}  // namespace starling::simulate
