#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/integer.h"
#include "starling/base/permutation.h"
#include "starling/topology/family/list.h"
#include "starling/topology/schedule.h"

namespace starling::topology::family {
namespace {

/// A random permutation arranges the ranks in a circle; each rank receives from the next k.
class ElOracle final : public Schedule {
 public:
  ElOracle(Rank n, Rank k, std::uint64_t seed) : Schedule(n), k_(k), seed_(seed) {}
  Step period() const override { return random() ? 0 : 1; }
  bool random() const override { return size() > k_ + 1; }

  std::optional<double> known_mean_square_rho() const override {
    if (size() == 1) return 0;
    const double n = size();
    return std::sqrt((n - k_ - 1) / ((k_ + 1.0) * (n - 1)));
  }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    if (k_ == 0) return;
    const Permutation p(size(), seed_, step);
    const Rank place = p.inverse(rank);
    out.self_weight = 1.0 / (k_ + 1);
    for (Rank j = 1; j <= k_; ++j) {
      out.add_source(p(add_mod(place, j, size())), out.self_weight);
      out.add_destination(p(sub_mod(place, j, size())));
    }
  }

  Rank k_;
  std::uint64_t seed_;
};

}  // namespace

Family el_oracle() {
  return {
      .name = "el-oracle",
      .summary = "a new random k-regular digraph each round",
      .parameters = {{"k", "1", "peers a round, below n"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const std::int64_t k = parameters.integer("k", 1, INT32_MAX);
        if (setting.n > 1 && k >= setting.n)
          throw InvalidArgument(
              fmt::format("{}: k={} must be below n = {}", parameters.owner(), k, setting.n));
        return std::make_shared<ElOracle>(setting.n, setting.n == 1 ? 0 : static_cast<Rank>(k),
                                          parameters.seed());
      },
      .random = true,
      .changing = true};
}

}  // namespace starling::topology::family
