#include "starling/topology/relabel.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace starling::topology {
namespace {

class Relabeled final : public Schedule {
 public:
  Relabeled(SchedulePtr inner, std::vector<Rank> members, Rank n)
      : Schedule(n), inner_(std::move(inner)), members_(std::move(members)) {
    set_name(fmt::format("{} played by [{}]", inner_->name(), fmt::join(members_, ",")));
  }

  Step period() const override { return inner_->period(); }
  bool random() const override { return inner_->random(); }
  Mixing mixing() const override { return inner_->mixing(); }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    const auto found = std::find(members_.begin(), members_.end(), rank);
    if (found == members_.end()) return;
    inner_->exchange(step, static_cast<Rank>(found - members_.begin()), out);
    if (out.group.size() > 1) {
      auto ranks = std::make_shared<std::vector<Rank>>();
      for (std::int64_t i = 0; i < out.group.size(); ++i) ranks->push_back(member(out.group[i]));
      out.group = {0, 1, static_cast<std::int64_t>(ranks->size()), 1, ranks};
    }
    for (Source& source : out.sources) source.rank = member(source.rank);
    for (Destination& destination : out.destinations) destination.rank = member(destination.rank);
  }

  Rank member(Rank r) const { return members_[static_cast<std::size_t>(r)]; }

  SchedulePtr inner_;
  std::vector<Rank> members_;
};

}  // namespace

SchedulePtr relabel(SchedulePtr inner, std::vector<Rank> members, Rank n) {
  return std::make_shared<Relabeled>(std::move(inner), std::move(members), n);
}

}  // namespace starling::topology
