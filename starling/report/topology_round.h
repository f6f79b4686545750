#pragma once

#include <compare>
#include <vector>

#include "starling/topology/schedule.h"

namespace starling::report {

/// An edge as it is drawn: from SENDER to RECEIVER; a mutual edge stands for both directions.
struct DrawnEdge {
  Rank sender = 0;
  Rank receiver = 0;
  Lane lane = Lane::a;
  bool mutual = false;
  double weight = 0;  // the larger in magnitude, if the two directions differ

  auto operator<=>(const DrawnEdge&) const = default;
};

/// The visible content of one round; equal rounds compare equal.
struct DrawnRound {
  std::vector<DrawnEdge> edges;
  std::vector<std::vector<Rank>> groups;  // groups of at least two members, each ascending
  std::vector<int> group_of;              // per rank: index into groups, -1 for none
  std::vector<bool> idle;                 // per rank: it neither receives nor sends

  bool operator==(const DrawnRound&) const = default;
};

DrawnRound draw_round(const Schedule& schedule, Step step);

/// Consecutive equal rounds, first .. last, which share one panel.
struct DrawnRounds {
  Step first = 0;
  Step last = 0;
  DrawnRound round;
};

struct RoundSelection {
  std::vector<DrawnRounds> panels;
  bool complete = true;  // the panels show the whole schedule
};

/// One panel for a static graph, else one per round of a period (or of the first rounds, if there is no
/// period), at most `most`.
RoundSelection select_rounds(const Schedule& schedule, int most);

}  // namespace starling::report
