#pragma once

#include <string>

#include "starling/report/topology_layout.h"
#include "starling/report/topology_round.h"

namespace starling::report {

/// The style that all panels of a picture share.
struct PanelStyle {
  double side = 0;  // width of the box for the ranks
  double height = 0;
  double rim = 0;  // around the box
  double node_radius = 8;
  double heaviest = 1;  // the largest |weight| of the picture: full width
  bool labels = true;
  bool tooltips = true;
};

/// Sizes that leave enough room for the ranks and still let several panels fit side by side.
PanelStyle fit_panels(const std::vector<TopologyLayout>& layouts);

/// Draws one round, centered at `center`.
void append_panel(std::string& svg, const DrawnRound& round, const TopologyLayout& layout,
                  const PanelStyle& style, Point center);

}  // namespace starling::report
