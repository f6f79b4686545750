#include <cmath>
#include <numbers>

#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {

Family ring() {
  return {
      .name = "ring",
      .summary = "i with i-1 and i+1, 1/3 each",
      .parameters = {weights_parameter("metropolis")},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const Rank n = setting.n;
        std::vector<Rank> offsets;
        if (n > 1) offsets.push_back(1);
        if (n > 2) offsets.push_back(n - 1);
        // For n >= 3; at n = 3 it is |1/3 + 2/3 cos(2 pi / 3)| = 0, the complete graph.
        const double rho = n <= 3 ? 0 : 1.0 / 3 + 2.0 / 3 * std::cos(2 * std::numbers::pi / n);
        return weighted_circulant(n, std::move(offsets), parameters, /*directed=*/false, rho);
      }};
}

Family one_way_ring() {
  return {
      .name = "one-way-ring",
      .summary = "i receives from i+1, halves",
      .parameters = {weights_parameter("uniform")},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const Rank n = setting.n;
        const double rho = n <= 2 ? 0 : std::cos(std::numbers::pi / n);
        return weighted_circulant(n, n > 1 ? std::vector<Rank>{1} : std::vector<Rank>{}, parameters,
                                  /*directed=*/n > 2, rho);
      }};
}

}  // namespace starling::topology::family
