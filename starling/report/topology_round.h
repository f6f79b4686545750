#pragma once

#include <compare>
#include <vector>

#include "starling/topology/schedule.h"

namespace starling::report {

/// An edge as it is drawn: SENDER tells RECEIVER; a mutual edge stands for both directions.
struct DrawnEdge {
  Rank sender = 0;
  Rank receiver = 0;
  Lane lane = Lane::a;
  bool mutual = false;
  double weight = 0;  // of two that differ, the larger in size

  auto operator<=>(const DrawnEdge&) const = default;
};

/// What there is to draw of one round; equal rounds compare equal.
struct DrawnRound {
  std::vector<DrawnEdge> edges;
  std::vector<std::vector<Rank>> groups;  // with two members or more, each ascending
  std::vector<int> group_of;              // per rank: index into groups, -1 for none
  std::vector<bool> idle;                 // per rank: neither hears nor tells anybody

  bool operator==(const DrawnRound&) const = default;
};

DrawnRound draw_round(const Schedule& schedule, Step step);

/// Consecutive equal rounds: first .. last share one picture.
struct DrawnRounds {
  Step first = 0;
  Step last = 0;
  DrawnRound round;
};

struct RoundSelection {
  std::vector<DrawnRounds> panels;
  bool complete = true;  // the panels show the whole schedule
};

/// One panel for a static graph, else one per round of a period (or of the start, if there is none), at most
/// `most`.
RoundSelection select_rounds(const Schedule& schedule, int most);

}  // namespace starling::report
