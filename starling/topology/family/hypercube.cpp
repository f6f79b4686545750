#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/integer.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"
#include "starling/topology/matching.h"

namespace starling::topology::family {
namespace {

class Hypercube final : public Graph {
 public:
  using Graph::Graph;
  void append_out(Rank rank, std::vector<Rank>& out) const override {
    for (Rank bit = 1; bit < size(); bit *= 2) out.push_back(rank ^ bit);
  }
  Rank out_degree(Rank /*rank*/) const override { return floor_log2(size()); }
};

class OnePeerHypercube final : public Matching {
 public:
  explicit OnePeerHypercube(Rank n) : Matching(n, 0.5), dimensions_(floor_log2(n)) {}
  Step period() const override { return dimensions_ > 0 ? dimensions_ : 1; }
  Rank partner(Step step, Rank rank) const override {
    return dimensions_ == 0 ? rank : rank ^ (Rank{1} << (step % dimensions_));
  }
  std::optional<double> known_rho() const override { return 0; }

 private:
  int dimensions_;
};

void check_power_of_two(const Parameters& parameters, Rank n) {
  if (!is_power_of_two(n))
    throw InvalidArgument(fmt::format("{}: n = {} is not a power of two; nearest are {} and {}",
                                      parameters.owner(), n, std::int64_t{1} << floor_log2(n),
                                      std::int64_t{1} << ceil_log2(n)));
}

}  // namespace

Family hypercube() {
  return {.name = "hypercube",
          .summary = "i with i xor 2^b; n a power of two",
          .parameters = {weights_parameter("metropolis")},
          .make = [](const Parameters& parameters, const TopologySetting& setting) {
            check_power_of_two(parameters, setting.n);
            const int dimensions = floor_log2(setting.n);
            const double rho = dimensions <= 1 ? 0 : 1 - 2.0 / (dimensions + 1);
            return weighted(std::make_shared<Hypercube>(setting.n), parameters, rho);
          }};
}

Family one_peer_hypercube() {
  return {
      .name = "one-peer-hypercube",
      .summary = "i with i xor 2^(t mod D), halves; n = 2^D",
      .parameters = {},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        check_power_of_two(parameters, setting.n);
        return std::make_shared<OnePeerHypercube>(setting.n);
      },
      .changing = true};
}

}  // namespace starling::topology::family
