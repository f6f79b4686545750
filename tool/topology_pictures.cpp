#include "tool/topology_pictures.h"

#include <fmt/format.h>
#include <set>

#include "starling/base/error.h"
#include "starling/report/topology_svg.h"
#include "starling/topology/registry.h"

namespace starling::tool {

std::vector<Picture> topology_pictures(const std::vector<std::string>& names, std::uint64_t seed) {
  constexpr Rank kRanks = 8;
  TopologySvgOptions options;
  options.max_rounds = 4;
  std::set<std::string> drawn;
  std::vector<Picture> pictures;
  for (const std::string& name : names) {
    if (name.empty() || !drawn.insert(name).second) continue;
    try {
      pictures.push_back({topology_svg(*make_schedule(name, kRanks, seed), options),
                          fmt::format("{} on {} ranks", name, kRanks)});
    } catch (const InvalidArgument&) {  // for example a file's graph, or three local ranks
    }
  }
  return pictures;
}

}  // namespace starling::tool
