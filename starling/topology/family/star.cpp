#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

class Star final : public Graph {
 public:
  Star(Rank n, Rank center) : Graph(n), center_(center) {}
  void append_out(Rank rank, std::vector<Rank>& out) const override {
    if (rank != center_) {
      out.push_back(center_);
      return;
    }
    for (Rank spoke = 0; spoke < size(); ++spoke)
      if (spoke != center_) out.push_back(spoke);
  }
  Rank out_degree(Rank rank) const override { return rank == center_ ? size() - 1 : 1; }

 private:
  Rank center_;
};

}  // namespace

Family star() {
  return {.name = "star",
          .summary = "every rank with one center",
          .parameters = {{"center", "0", "the rank in the middle"}, weights_parameter("metropolis")},
          .make = [](const Parameters& parameters, const TopologySetting& setting) {
            const Rank n = setting.n;
            const auto center = static_cast<Rank>(parameters.integer("center", 0, n - 1));
            return weighted(std::make_shared<Star>(n, center), parameters, n <= 2 ? 0 : 1 - 1.0 / n);
          }};
}

}  // namespace starling::topology::family
