#include "starling/report/topology_round.h"

#include <algorithm>
#include <cmath>

namespace starling::report {
namespace {

constexpr int kRandomDraws = 6;                     // enough to show that rounds differ
constexpr std::int64_t kMostExchanges = 1'000'000;  // exchanges to examine before a long period is cut short

double heavier(double left, double right) {
  return std::abs(right) > std::abs(left) ? right : left;
}

/// Merges i -> j and j -> i on one lane into one mutual edge.
std::vector<DrawnEdge> merge_mutual(std::vector<DrawnEdge> edges) {
  const auto key = [](const DrawnEdge& e) {
    return std::tuple(std::min(e.sender, e.receiver), std::max(e.sender, e.receiver), e.lane, e.sender);
  };
  std::sort(edges.begin(), edges.end(),
            [&](const DrawnEdge& l, const DrawnEdge& r) { return key(l) < key(r); });
  std::vector<DrawnEdge> merged;
  for (const DrawnEdge& edge : edges) {
    if (!merged.empty() && merged.back().sender == edge.receiver && merged.back().receiver == edge.sender &&
        merged.back().lane == edge.lane) {
      merged.back().mutual = true;
      merged.back().weight = heavier(merged.back().weight, edge.weight);
    } else {
      merged.push_back(edge);
    }
  }
  return merged;
}

void add_group(const Group& group, DrawnRound& round) {
  std::vector<Rank> members;
  for (std::int64_t i = 0; i < group.size(); ++i) members.push_back(group[i]);
  std::sort(members.begin(), members.end());
  for (const Rank member : members)
    round.group_of[static_cast<std::size_t>(member)] = static_cast<int>(round.groups.size());
  round.groups.push_back(std::move(members));
}

}  // namespace

DrawnRound draw_round(const Schedule& schedule, Step step) {
  const auto n = static_cast<std::size_t>(schedule.size());
  DrawnRound round;
  round.group_of.assign(n, -1);
  round.idle.assign(n, n > 1);  // a single rank has no peers and is not idle
  Exchange exchange;
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    schedule.exchange(step, rank, exchange);
    if (exchange.group.size() > 1) {
      round.idle[r] = false;
      if (round.group_of[r] < 0) add_group(exchange.group, round);
    }
    for (const Source& source : exchange.sources) {
      if (source.rank == rank) continue;
      round.idle[r] = false;
      round.idle[static_cast<std::size_t>(source.rank)] = false;
      const double weight = source.weight != 0 ? source.weight : source.weight_b;
      round.edges.push_back({source.rank, rank, source.lane, false, weight});
    }
  }
  round.edges = merge_mutual(std::move(round.edges));
  return round;
}

RoundSelection select_rounds(const Schedule& schedule, int most) {
  const Step period = schedule.period();
  const bool cycles = period > 0 && !schedule.random();
  // For a random schedule, a few draws of its natural cycle; equal neighbors share a panel anyway.
  const Step wanted = cycles       ? period
                      : period > 1 ? period
                                   : std::min<Step>(most, schedule.random() ? kRandomDraws : most);
  const Step affordable = std::max<Step>(1, kMostExchanges / schedule.size());
  const Step end = std::min(wanted, affordable);

  RoundSelection selection;
  selection.complete = cycles && end == period;
  for (Step step = 0; step < end; ++step) {
    DrawnRound round = draw_round(schedule, step);
    if (!selection.panels.empty() && selection.panels.back().round == round) {
      selection.panels.back().last = step;
    } else if (static_cast<int>(selection.panels.size()) == most) {
      selection.complete = false;
      break;
    } else {
      selection.panels.push_back({step, step, std::move(round)});
    }
  }
  return selection;
}

}  // namespace starling::report
