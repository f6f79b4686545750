#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// One group of all ranks: a collective instead of n^2 messages.
class Complete final : public Schedule {
 public:
  using Schedule::Schedule;
  std::optional<double> known_rho() const override { return 0; }

 private:
  void fill(Step /*step*/, Rank /*rank*/, Exchange& out) const override {
    out.group.count = size() > 1 ? size() : 0;
  }
};

}  // namespace

Family complete() {
  return {.name = "complete",
          .summary = "the mean of all, as one collective",
          .parameters = {},
          .make = [](const Parameters&, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
            return std::make_shared<Complete>(setting.n);
          }};
}

}  // namespace starling::topology::family
