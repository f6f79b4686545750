#include "starling/topology/hierarchical.h"

#include <fmt/format.h>

#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// W_outer(machines) kron 11^T / L: the mean within every machine, then the outer exchange between equal
/// local ranks.
class Hierarchical final : public Schedule {
 public:
  Hierarchical(SchedulePtr outer, Rank local)
      : Schedule(outer->size() * local), outer_(std::move(outer)), local_(local) {}

  Step period() const override { return outer_->period(); }
  bool random() const override { return outer_->random(); }
  Mixing mixing() const override { return outer_->mixing(); }
  std::optional<double> known_rho() const override { return outer_->known_rho(); }
  std::optional<double> known_mean_square_rho() const override { return outer_->known_mean_square_rho(); }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    const Rank machine = rank / local_;
    outer_->exchange(step, machine, out);
    Group& group = out.group;
    if (group.size() <= 1) {
      group = {static_cast<std::int64_t>(machine) * local_, 1, local_ > 1 ? local_ : 0, 1, nullptr};
    } else if (!group.members) {
      group = {group.first * local_, group.stride * local_, group.count, group.block * local_, nullptr};
    } else {
      // There is no formula for the ranks of a list of machines: write them out.
      auto members = std::make_shared<std::vector<Rank>>();
      for (std::int64_t i = 0; i < group.size(); ++i)
        for (Rank q = 0; q < local_; ++q) members->push_back(group[i] * local_ + q);
      group = {0, 1, static_cast<std::int64_t>(members->size()), 1, members};
    }
    for (Source& source : out.sources) source.rank = source.rank * local_ + rank % local_;
    for (Destination& destination : out.destinations)
      destination.rank = destination.rank * local_ + rank % local_;
  }

  SchedulePtr outer_;
  Rank local_;
};

}  // namespace
}  // namespace starling::topology::family

namespace starling::topology {

std::shared_ptr<Schedule> hierarchical_schedule(SchedulePtr outer, Rank local) {
  const std::string name = fmt::format("hierarchical(outer={},local={})", outer->name(), local);
  auto schedule = std::make_shared<family::Hierarchical>(std::move(outer), local);
  schedule->set_name(name);
  return schedule;
}

}  // namespace starling::topology

namespace starling::topology::family {

Family hierarchical() {
  return {
      .name = "hierarchical",
      .summary = "the mean inside machines, any topology between them",
      .parameters = {{"outer", "", "the topology between machines", ParameterKind::topology},
                     {"local", "", "ranks per machine"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const Machines shape = read_machines(parameters, setting.n);
        auto outer = make_schedule(parameters.spec("outer"), {shape.machines, setting.seed});
        return std::make_shared<Hierarchical>(std::move(outer), shape.local);
      },
      .changing = true};
}

}  // namespace starling::topology::family
