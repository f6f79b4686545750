#include <numeric>

#include "starling/topology/family/list.h"
#include "starling/topology/schedule.h"

namespace starling::topology::family {
namespace {

/// Any schedule, with every h-th round replaced by the global mean.
class Periodic final : public Schedule {
 public:
  // Cached: nested calls would multiply.
  Periodic(SchedulePtr inner, Step h)
      : Schedule(inner->size()),
        inner_(std::move(inner)),
        h_(h),
        inner_mixing_(inner_->mixing()),
        inner_random_(inner_->random()),
        period_(common_period(inner_->period())) {}

  Step period() const override { return period_; }
  bool random() const override { return inner_random_ && h_ > 1; }
  Mixing mixing() const override { return inner_mixing_; }

 private:
  Step common_period(Step inner) const {
    constexpr Step kLongestPeriod = Step{1} << 40;
    if (inner_mixing_ == Mixing::two_block) return h_;
    if (inner == 0) return inner_random_ ? h_ : 0;
    const Step repeats = inner / std::gcd(h_, inner);
    return repeats > kLongestPeriod / h_ ? 0 : h_ * repeats;
  }

  void fill(Step step, Rank rank, Exchange& out) const override {
    if ((step + 1) % h_ == 0) {
      out.group.count = size() > 1 ? size() : 0;
      return;
    }
    // CECA is exact from phase 0 only, so the global mean restarts its period.
    inner_->exchange(inner_mixing_ == Mixing::two_block ? step % h_ : step, rank, out);
  }

  SchedulePtr inner_;
  Step h_;
  Mixing inner_mixing_;
  bool inner_random_;
  Step period_;
};

}  // namespace

Family periodic() {
  return {
      .name = "periodic",
      .summary = "any topology with the global mean in every h-th round",
      .parameters = {{"schedule", "", "the topology of the other rounds", ParameterKind::topology},
                     {"h", "", "rounds from mean to mean"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        return std::make_shared<Periodic>(make_schedule(parameters.spec("schedule"), setting),
                                          parameters.integer("h", 1, INT32_MAX));
      },
      .changing = true};
}

}  // namespace starling::topology::family
