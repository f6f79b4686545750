#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/integer.h"
#include "starling/topology/family/list.h"
#include "starling/topology/matching.h"

namespace starling::topology::family {
namespace {

class OnePeerRing final : public Matching {
 public:
  explicit OnePeerRing(Rank n) : Matching(n, 0.5) {}
  Step period() const override { return size() > 1 ? 2 : 1; }
  Rank partner(Step step, Rank rank) const override {
    if (size() == 1) return rank;
    const bool up = (rank % 2 == 0) == (step % 2 == 0);
    return up ? add_mod(rank, 1, size()) : sub_mod(rank, 1, size());
  }
};

}  // namespace

Family one_peer_ring() {
  return {
      .name = "one-peer-ring",
      .summary = "pairs (2a, 2a+1) and (2a, 2a-1) in turn, halves; n even",
      .parameters = {},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        if (setting.n > 1 && setting.n % 2 != 0)
          throw InvalidArgument(
              fmt::format("{}: n = {} is odd; it needs an even n", parameters.owner(), setting.n));
        return std::make_shared<OnePeerRing>(setting.n);
      },
      .changing = true};
}

}  // namespace starling::topology::family
