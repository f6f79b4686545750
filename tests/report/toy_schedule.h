#pragma once

#include <functional>
#include <string>
#include <utility>

#include "starling/topology/schedule.h"

namespace starling::report {

/// A schedule from a function, so that tests of pictures do not depend on the families.
class ToySchedule : public Schedule {
 public:
  using Fill = std::function<void(Step, Rank, Exchange&)>;

  ToySchedule(std::string name, Rank n, Step period, Fill fill, bool random = false)
      : Schedule(n), period_(period), fill_(std::move(fill)), random_(random) {
    set_name(std::move(name));
  }

  Step period() const override { return period_; }
  bool random() const override { return random_; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override { fill_(step, rank, out); }

  Step period_;
  Fill fill_;
  bool random_;
};

inline ToySchedule::Fill toy_ring(Rank n) {
  return [n](Step, Rank rank, Exchange& out) {
    out.self_weight = 1.0 / 3;
    out.add_pair((rank + 1) % n, 1.0 / 3);
    out.add_pair((rank + n - 1) % n, 1.0 / 3);
  };
}

/// A binary tree: w is connected with w / 2, as in the specification.
inline ToySchedule::Fill toy_tree(Rank n) {
  return [n](Step, Rank rank, Exchange& out) {
    for (Rank w = 1; w < n; ++w) {
      if (w == rank) out.add_pair(w / 2, 0.25);
      if (w / 2 == rank) out.add_pair(w, 0.25);
    }
  };
}

}  // namespace starling::report
