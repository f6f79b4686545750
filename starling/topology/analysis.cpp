#include "starling/topology/analysis.h"

#include <algorithm>
#include <cmath>

#include "starling/base/integer.h"
#include "starling/base/random.h"
#include "starling/topology/mixer.h"
#include "starling/topology/spectrum.h"

namespace starling::topology {
namespace {

constexpr Rank kLargestLambdaMin = 4'096;  // beyond this, the iteration converges too slowly
constexpr Step kSampledRounds = 32;        // of a random family, for properties that must hold in every round
constexpr Step kMostRounds = 128;          // the same, of a long period
constexpr std::int64_t kWork = 20'000'000;     // ranks times rounds
constexpr std::int64_t kCostWork = 4'000'000;  // also for the average cost of a step

Step rounds_to_look_at(const Schedule& schedule) {
  const Step wanted = schedule.random() ? std::max(schedule.period(), kSampledRounds) : schedule.period();
  return std::max<Step>(1,
                        std::min({wanted == 0 ? kMostRounds : wanted, kMostRounds, kWork / schedule.size()}));
}

// Whether running a whole period is affordable.
bool period_fits(const Schedule& schedule) {
  return schedule.period() <= kWork / schedule.size();
}

// The number of matrix entries with groups expanded: n^2 for the complete graph.
std::int64_t entries_of_round(const Schedule& schedule, Step step) {
  std::int64_t count = 0;
  Exchange exchange;
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    schedule.exchange(step, rank, exchange);
    count += std::max<std::int64_t>(1, exchange.group.size()) *
             (1 + static_cast<std::int64_t>(exchange.sources.size()));
  }
  return count;
}

// Fills in row and column sums, symmetry, signs and connectivity in one pass over all entries.
void look_at_entries(const Schedule& schedule, Analysis& analysis) {
  constexpr double kTolerance = 1e-9;
  constexpr std::size_t kMostEdges = 50'000'000;
  const auto n = static_cast<std::size_t>(schedule.size());
  bool rows = true;
  bool columns = true;
  bool symmetric = true;
  bool nonnegative = true;
  std::vector<std::pair<Rank, Rank>> edges;
  const Step rounds = rounds_to_look_at(schedule);
  for (Step t = 0; t < rounds; ++t) {
    if (entries_of_round(schedule, t) > kWork) return;
    const auto entries = RoundMatrix(schedule, t).entries();
    std::vector<double> row_sums(n, 0.0);
    std::vector<double> column_sums(n, 0.0);
    std::vector<std::size_t> row_start(n + 1, 0);
    for (const Entry& entry : entries) {
      row_sums[static_cast<std::size_t>(entry.receiver)] += entry.weight;
      column_sums[static_cast<std::size_t>(entry.sender)] += entry.weight;
      nonnegative = nonnegative && entry.weight > -kTolerance;
      ++row_start[static_cast<std::size_t>(entry.receiver) + 1];
      if (entry.receiver != entry.sender && entry.weight != 0)
        edges.emplace_back(entry.sender, entry.receiver);
    }
    const auto is_one = [](double sum) { return std::abs(sum - 1) < kTolerance; };
    rows = rows && std::all_of(row_sums.begin(), row_sums.end(), is_one);
    columns = columns && std::all_of(column_sums.begin(), column_sums.end(), is_one);
    for (std::size_t i = 0; i < n; ++i) row_start[i + 1] += row_start[i];
    const auto weight_at = [&](Rank receiver, const Entry& mirrored) {
      const auto begin =
          entries.begin() + static_cast<std::ptrdiff_t>(row_start[static_cast<std::size_t>(receiver)]);
      const auto end =
          entries.begin() + static_cast<std::ptrdiff_t>(row_start[static_cast<std::size_t>(receiver) + 1]);
      const auto at = std::lower_bound(begin, end, mirrored.receiver,
                                       [](const Entry& e, Rank sender) { return e.sender < sender; });
      return at != end && at->sender == mirrored.receiver && at->lane == mirrored.lane ? at->weight : 0.0;
    };
    for (const Entry& entry : entries)
      symmetric = symmetric && std::abs(weight_at(entry.sender, entry) - entry.weight) < kTolerance;
    if (edges.size() > kMostEdges) break;
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  }
  analysis.row_stochastic = rows;
  analysis.column_stochastic = columns;
  analysis.symmetric = symmetric;
  analysis.nonnegative = nonnegative;
  analysis.connected = !unreachable(StoredGraph(schedule.size(), edges, /*directed=*/true));
}

std::vector<RoundMatrix> matrices(const Schedule& schedule, Step first, Step count) {
  std::vector<RoundMatrix> rounds;
  for (Step t = 0; t < count; ++t) rounds.emplace_back(schedule, first + t);
  return rounds;
}

// E||(W - J) v||^2 for the worst direction v: found on one half of the samples, measured on the other.
std::optional<Finding> sampled_mean_square_rho(const Schedule& schedule) {
  constexpr Step kSamples = 400;
  constexpr Step kUsedSamples = kSamples / 2;  // after the worst direction was found
  const auto rounds = matrices(schedule, 0, kSamples);
  const std::span<const RoundMatrix> all(rounds);
  const auto direction = worst_direction(all.first(kSamples - kUsedSamples));
  if (!direction) return std::nullopt;
  std::vector<double> image(direction->size());
  double sum = 0;
  double squares = 0;
  for (const RoundMatrix& round : all.last(kUsedSamples)) {
    round.multiply(direction->data(), image.data());
    const auto mean = mean_of(*direction, 1);
    const double norm = distance_to(image, mean);
    sum += norm * norm;
    squares += norm * norm * norm * norm;
  }
  const double count = kUsedSamples;
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean) / count);
  const double rho = std::sqrt(mean);
  return Finding{rho, "sampled", rho > 0 ? deviation / (2 * rho) : 0};
}

std::optional<Finding> mean_square_rho(const Schedule& schedule, const AnalysisOptions& options) {
  if (const auto known = schedule.known_mean_square_rho()) return Finding{*known, "formula", 0};
  constexpr std::int64_t kSampledLimit = 4'096;
  if (schedule.size() > std::min(options.matrix_limit, kSampledLimit) || schedule.mixing() != Mixing::average)
    return std::nullopt;
  return sampled_mean_square_rho(schedule);
}

std::optional<Finding> rho_of(const Schedule& schedule, const std::optional<Exactness>& exact,
                              const AnalysisOptions& options) {
  if (const auto known = schedule.known_rho()) return Finding{*known, "formula", 0};
  const Step period = schedule.period();
  if (exact && exact->rounds <= std::max<Step>(1, period)) return Finding{0, "exact average", 0};
  if (schedule.random()) return mean_square_rho(schedule, options);
  if (period == 0 || schedule.mixing() == Mixing::two_block) return std::nullopt;
  const auto root = [&](double norm) { return std::pow(norm, 1.0 / static_cast<double>(period)); };
  if (const auto* circulant = dynamic_cast<const Circulant*>(&schedule);
      circulant != nullptr && schedule.size() <= options.circulant_limit)
    return Finding{root(circulant_deviation_norm(*circulant, 0, period)), "circulant eigenvalues", 0};
  if (schedule.size() > options.matrix_limit || !period_fits(schedule)) return std::nullopt;
  const auto norm = deviation_norm(matrices(schedule, 0, period));
  if (!norm) return std::nullopt;
  return Finding{root(*norm), "eigenvalues", 0};
}

std::vector<double> each_round_rho(const Schedule& schedule) {
  constexpr std::int64_t kWorkLimit = 200'000;
  std::vector<double> values;
  if (schedule.random() || schedule.period() < 2 || schedule.mixing() != Mixing::average) return values;
  const auto* circulant = dynamic_cast<const Circulant*>(&schedule);
  constexpr Rank kLargestMatrix = 2'000;
  if (schedule.period() > kWorkLimit / schedule.size() ||
      (circulant == nullptr && schedule.size() > kLargestMatrix))
    return values;
  for (Step t = 0; t < schedule.period(); ++t) {
    const auto norm = circulant != nullptr ? std::optional(circulant_deviation_norm(*circulant, t, 1))
                                           : deviation_norm(matrices(schedule, t, 1));
    values.push_back(norm.value_or(std::nan("")));
  }
  return values;
}

}  // namespace

std::optional<Exactness> find_exactness(const SchedulePtr& schedule) {
  // A linear map that averages random normal vectors averages every vector, with probability one.
  constexpr int kDim = 2;
  constexpr double kExact = 1e-12;
  constexpr double kDrop = 1e-4;  // exactness is reached in one round, fast contraction gradually
  const Rank n = schedule->size();
  const Step period = schedule->period();
  if (period == 0 || !period_fits(*schedule)) return std::nullopt;
  std::vector<double> start(static_cast<std::size_t>(n) * kDim);
  Random random(1, 0, stream::kAnalysis);
  for (double& value : start) value = random.normal();
  const auto mean = mean_of(start, kDim);
  const double scale = distance_to(start, mean);
  if (n == 1) return Exactness{0, true};
  const Step longest = std::max<Step>(period, 2 * ceil_log2(n) + 2);
  Mixer mixer(schedule, kDim);
  const auto rounds_from = [&](Step first) -> std::optional<Step> {
    mixer.start(start, first);
    double before = 1;
    for (Step t = 1; t <= longest; ++t) {
      mixer.advance();
      const double error = distance_to(mixer.values(), mean) / scale;
      if (error < kExact && error < kDrop * before) return t;
      before = error;
    }
    return std::nullopt;
  };
  const auto rounds = rounds_from(0);
  if (!rounds) return std::nullopt;
  if (schedule->random()) {  // a claim about random rounds must hold in other periods, too
    for (Step k = 1; k <= 4; ++k)
      if (rounds_from(k * period) != rounds) return std::nullopt;
    return Exactness{*rounds, false};
  }
  for (Step first = 1; first < period; ++first)
    if (rounds_from(first) != rounds) return Exactness{*rounds, false};
  return Exactness{*rounds, true};
}

std::optional<Finding> find_rho(const SchedulePtr& schedule, const AnalysisOptions& options) {
  std::optional<Exactness> exact;
  if (!schedule->known_rho() && schedule->size() <= options.exactness_limit) exact = find_exactness(schedule);
  return rho_of(*schedule, exact, options);
}

std::optional<Contraction> find_contraction(const SchedulePtr& schedule, const Finding& rho,
                                            const AnalysisOptions& options) {
  const Step period = std::max<Step>(1, schedule->period());
  const bool exact = rho.value == 0 && (!schedule->random() || rho.how == "exact average");
  if (!exact && (schedule->random() || schedule->period() == 0)) return Contraction{1, rho.value};
  if (!exact) return Contraction{period, std::pow(rho.value, static_cast<double>(period))};
  if (schedule->size() > options.exactness_limit || !period_fits(*schedule)) return Contraction{period, 0};
  const auto found = find_exactness(schedule);
  return Contraction{found ? std::max<Step>(1, found->rounds) : period, 0};
}

std::optional<double> transient_steps(const Contraction& contraction, Rank n, int power) {
  if (contraction.rho >= 1) return std::nullopt;
  if (contraction.rounds == 1 && contraction.rho == 0) return 0.0;
  return std::pow(n, 3) * std::pow(static_cast<double>(contraction.rounds) / (1 - contraction.rho), power);
}

Analysis analyze(const SchedulePtr& schedule, const AnalysisOptions& options) {
  Analysis analysis;
  analysis.name = schedule->name();
  analysis.n = schedule->size();
  analysis.period = schedule->period();
  analysis.random = schedule->random();
  analysis.mixing = schedule->mixing();
  analysis.cost =
      step_cost(*schedule, std::min(rounds_to_look_at(*schedule), std::max<Step>(1, kCostWork / analysis.n)));
  analysis.exactness_run = analysis.n <= options.exactness_limit && period_fits(*schedule);
  if (analysis.exactness_run) analysis.exact = find_exactness(schedule);
  if (analysis.exact && analysis.exact->rounds > 0)
    analysis.messages_per_exact =
        step_cost(*schedule, analysis.exact->rounds).messages * static_cast<double>(analysis.exact->rounds);
  analysis.rho = rho_of(*schedule, analysis.exact, options);
  analysis.rho_is_mean_square =
      analysis.rho && schedule->random() && !schedule->known_rho() && analysis.rho->how != "exact average";
  analysis.round_rho = each_round_rho(*schedule);

  if (analysis.n <= options.matrix_limit) look_at_entries(*schedule, analysis);
  if (analysis.period == 1 && !analysis.random && analysis.symmetric.value_or(false)) {
    if (const auto* circulant = dynamic_cast<const Circulant*>(schedule.get())) {
      analysis.lambda_min = circulant_least_eigenvalue(*circulant, 0);
    } else if (analysis.n <= kLargestLambdaMin) {
      analysis.lambda_min = least_eigenvalue(RoundMatrix(*schedule, 0));
    }
  }
  const bool doubly = analysis.row_stochastic.value_or(true) && analysis.column_stochastic.value_or(true);
  if (analysis.period == 1 && !doubly) analysis.second_modulus = second_modulus(RoundMatrix(*schedule, 0));
  return analysis;
}

}  // namespace starling::topology
