#include "starling/base/integer.h"
#include "starling/topology/family/list.h"
#include "starling/topology/schedule.h"

namespace starling::topology::family {
namespace {

/// P = the largest power of two up to n. Ranks from P on send their whole value to i - P, the first P ranks
/// average as a hypercube and send half back. Columns sum to one: (x, weight) travels and x / weight is the
/// estimate.
class FoldUnfold final : public Schedule {
 public:
  explicit FoldUnfold(Rank n) : Schedule(n), dimensions_(floor_log2(n)), core_(Rank{1} << dimensions_) {}

  Step period() const override {
    if (size() == 1) return 1;
    return dimensions_ + (size() == core_ ? 0 : 2);
  }
  Mixing mixing() const override { return size() == core_ ? Mixing::average : Mixing::push_sum; }
  std::optional<double> known_rho() const override { return 0; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    if (size() == 1) return;
    const bool folds = size() != core_;
    const int round = static_cast<int>(step % period()) - (folds ? 1 : 0);
    const bool has_shadow = rank < size() - core_;
    if (round < 0) {
      if (rank >= core_) {
        out.self_weight = 0;
        out.add_destination(rank - core_);
      } else if (has_shadow) {
        out.add_source(rank + core_, 1);
      }
    } else if (round < dimensions_) {
      if (rank >= core_) return;
      out.self_weight = 0.5;
      out.add_pair(rank ^ (Rank{1} << round), 0.5);
    } else if (rank >= core_) {
      out.add_source(rank - core_, 0.5);
    } else if (has_shadow) {
      out.self_weight = 0.5;
      out.add_destination(rank + core_);
    }
  }

  int dimensions_;
  Rank core_;
};

}  // namespace

Family fold_unfold() {
  return {.name = "fold-unfold",
          .summary = "pairs on a power of two, the rest folded in; exact for any n by push-sum",
          .parameters = {},
          .make = [](const Parameters&, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
            return std::make_shared<FoldUnfold>(setting.n);
          },
          .changing = true};
}

}  // namespace starling::topology::family
