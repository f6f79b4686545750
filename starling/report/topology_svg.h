#pragma once

#include <string>

#include "starling/topology/schedule.h"

namespace starling::report {

struct TopologySvgOptions {
  std::string title = {};  // the schedule's name if empty
  int max_rounds = 12;     // panels; consecutive equal rounds share one
  Rank max_n = 512;        // an error for more ranks
  Rank max_labels = 64;    // ranks are numbered up to this n
};

/// A self-contained picture of the ranks and their connections, for light and dark screens: one panel for a
/// fixed graph, one per round for a changing one. Throws InvalidArgument for more than max_n ranks.
std::string topology_svg(const Schedule& schedule, const TopologySvgOptions& options = {});

}  // namespace starling::report

namespace starling {
using report::topology_svg;
}  // namespace starling
