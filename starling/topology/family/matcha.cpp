#include "starling/topology/family/matcha.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {

Matcha::Matcha(Rank n, std::vector<Partners> matchings, double budget, std::uint64_t seed)
    : Schedule(n),
      matchings_(std::move(matchings)),
      optimum_(optimize_matcha(n, matchings_, budget)),
      seed_(seed) {}

bool Matcha::random() const {
  for (const double p : optimum_.probabilities)
    if (p > 0 && p < 1) return true;
  return false;
}

std::optional<double> Matcha::known_mean_square_rho() const {
  return optimum_.mean_square_rho;
}

void Matcha::fill(Step step, Rank rank, Exchange& out) const {
  Random random(seed_, static_cast<std::uint64_t>(step), stream::kMatcha);
  for (std::size_t j = 0; j < matchings_.size(); ++j) {
    const bool active = random.uniform() < optimum_.probabilities[j];
    const Rank partner = matchings_[j][static_cast<std::size_t>(rank)];
    if (active && partner != rank) out.add_pair(partner, optimum_.edge_weight);
  }
  out.self_weight = 1 - optimum_.edge_weight * static_cast<double>(out.sources.size());
}

Family matcha() {
  return {
      .name = "matcha",
      .summary = "a graph's matchings, each used at random as often as a budget allows",
      .parameters = {{"graph", "", "an undirected static topology", ParameterKind::topology},
                     {"budget", "0.5", "share of the matchings used on average, above 0 and up to 1"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        constexpr Rank kMostRanks = 2000;  // the optimum needs eigenvalues many times
        if (setting.n > kMostRanks)
          throw InvalidArgument(fmt::format(
              "matcha: n = {} is above {}, from where on finding its probabilities takes minutes; "
              "random-matching takes any n",
              setting.n, kMostRanks));
        const SchedulePtr of = make_schedule(parameters.spec("graph"), setting);
        const double budget = parameters.number("budget", 1e-6, 1);
        if (of->period() != 1 || of->random())
          throw InvalidArgument(
              fmt::format("matcha: {} changes with the step; a static graph is needed", of->name()));
        const auto graph = graph_of(*of, /*as_undirected=*/true);
        if (const auto rank = unreachable(*graph))
          throw InvalidArgument(
              fmt::format("matcha: {} is not connected (rank {} is cut off)", of->name(), *rank));
        return std::make_shared<Matcha>(setting.n, color_edges(*graph), budget, parameters.seed());
      },
      .random = true,
      .changing = true};
}

}  // namespace starling::topology::family
