#include <algorithm>

#include "starling/topology/family/base.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// Alternating exponential ring for any number of machines: every round of BASE(machines, 1) becomes two. In
/// each, half of the machine pairs use the network while the other half average within their machines.
class Aer final : public Schedule {
 public:
  explicit Aer(Machines shape)
      : Schedule(shape.machines * shape.local), shape_(shape), stages_(shape.machines, 1) {
    bool odd = false;
    for (int stage = 0; stage < stages_.length(); ++stage) {
      starts_odd_.push_back(odd);
      odd = odd != (stages_.pairs_before(stage, shape.machines) % 2 == 1);
    }
  }

  Step period() const override { return 2 * stages_.length(); }
  std::optional<double> known_rho() const override { return 0; }

 private:
  // Which pairs use the network first follows from a running count of the pairs of all stages so far.
  bool outside_first(int stage, Rank machine, Rank other) const {
    return starts_odd_[static_cast<std::size_t>(stage)] !=
           (stages_.pairs_before(stage, std::min(machine, other)) % 2 == 1);
  }

  void fill(Step step, Rank rank, Exchange& out) const override {
    const auto round = static_cast<int>(step % period());
    const Rank local = shape_.local;
    const Rank machine = rank / local;
    const bool second = round % 2 == 1;
    stages_.fill(round / 2, machine, out);
    const bool paired = !out.sources.empty();
    const bool outside = paired && outside_first(round / 2, machine, out.sources[0].rank) != second;
    if (!outside) out.clear();
    if (paired || !second)
      out.group = {static_cast<std::int64_t>(machine) * local, 1, local > 1 ? local : 0, 1, nullptr};
    for (Source& source : out.sources) source.rank = source.rank * local + rank % local;
    for (Destination& destination : out.destinations)
      destination.rank = destination.rank * local + rank % local;
  }

  Machines shape_;
  BaseRounds stages_;
  std::vector<bool> starts_odd_;  // per stage
};

}  // namespace

Family aer() {
  return {
      .name = "aer",
      .summary = "alternating exponential ring: inside and between machines in turn; any machine count",
      .parameters = {{"local", "auto", "ranks per machine; auto: those of the flock, else 1"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const bool given = parameters.optional_integer("local", 1, INT32_MAX).has_value();
        return std::make_shared<Aer>(given ? read_machines(parameters, setting.n) : Machines{setting.n, 1});
      },
      .changing = true};
}

}  // namespace starling::topology::family
