#include <cmath>
#include <numbers>

#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

class Chain final : public Graph {
 public:
  using Graph::Graph;
  void append_out(Rank rank, std::vector<Rank>& out) const override {
    if (rank > 0) out.push_back(rank - 1);
    if (rank + 1 < size()) out.push_back(rank + 1);
  }
  Rank out_degree(Rank rank) const override { return (rank > 0 ? 1 : 0) + (rank + 1 < size() ? 1 : 0); }
};

}  // namespace

Family chain() {
  return {.name = "chain",
          .summary = "i with i+1, no wrap",
          .parameters = {weights_parameter("metropolis")},
          .make = [](const Parameters& parameters, const TopologySetting& setting) {
            const Rank n = setting.n;
            const double rho = n <= 2 ? 0 : 1.0 / 3 + 2.0 / 3 * std::cos(std::numbers::pi / n);
            return weighted(std::make_shared<Chain>(n), parameters, rho);
          }};
}

}  // namespace starling::topology::family
