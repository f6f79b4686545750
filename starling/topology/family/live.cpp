#include <algorithm>

#include "starling/topology/family/list.h"
#include "starling/topology/schedule.h"

namespace starling::topology::family {
namespace {

/// A schedule over some of the ranks: the r-th member acts as rank r, the others are idle.
class Live final : public Schedule {
 public:
  Live(Rank n, SchedulePtr inner, std::vector<Rank> members)
      : Schedule(n),
        inner_(std::move(inner)),
        members_(std::make_shared<const std::vector<Rank>>(std::move(members))) {}

  Step period() const override { return inner_->period(); }
  bool random() const override { return inner_->random(); }
  Mixing mixing() const override { return inner_->mixing(); }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    const auto found = std::lower_bound(members_->begin(), members_->end(), rank);
    if (found == members_->end() || *found != rank) return;
    inner_->exchange(step, static_cast<Rank>(found - members_->begin()), out);
    if (out.group.size() > 1) {
      if (!out.group.members) {
        out.group.members = members_;
      } else {
        auto ranks = std::make_shared<std::vector<Rank>>();
        for (std::int64_t i = 0; i < out.group.size(); ++i) ranks->push_back(member(out.group[i]));
        out.group = {0, 1, static_cast<std::int64_t>(ranks->size()), 1, ranks};
      }
    }
    for (Source& source : out.sources) source.rank = member(source.rank);
    for (Destination& destination : out.destinations) destination.rank = member(destination.rank);
  }

  Rank member(Rank r) const { return (*members_)[static_cast<std::size_t>(r)]; }

  SchedulePtr inner_;
  std::shared_ptr<const std::vector<Rank>> members_;
};

}  // namespace

Family live() {
  return {
      .name = "live",
      .summary = "any topology over the live ranks; the others are idle",
      .parameters = {{"schedule", "", "the topology of the members", ParameterKind::topology},
                     {"members", "", "ranks, such as [0,2,5..9]"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        auto members = parameters.ranks("members", setting.n);
        const TopologySetting inside{static_cast<Rank>(members.size()), setting.seed};
        return std::make_shared<Live>(setting.n, make_schedule(parameters.spec("schedule"), inside),
                                      std::move(members));
      },
      .changing = true};
}

}  // namespace starling::topology::family
