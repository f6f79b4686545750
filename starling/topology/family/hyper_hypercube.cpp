#include "starling/topology/family/hyper_hypercube.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

// Divides n by k+1, then k, ..., 2, each as often as possible; returns the rest.
std::int64_t divide_out(std::int64_t n, std::int64_t k, std::vector<std::int64_t>& factors) {
  for (std::int64_t f = std::min(k + 1, n); f >= 2; --f) {
    while (n % f == 0) {
      factors.push_back(f);
      n /= f;
    }
    f = std::min(f, n + 1);  // no divisor is larger than the rest
  }
  return n;
}

class HyperHypercubeSchedule final : public Schedule {
 public:
  HyperHypercubeSchedule(Rank n, std::int64_t k) : Schedule(n), rounds_(n, k) {}
  Step period() const override { return rounds_.length(); }
  std::optional<double> known_rho() const override { return 0; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    rounds_.fill(static_cast<int>(step % rounds_.length()), rank, 0, 1, out);
  }
  HyperHypercube rounds_;
};

}  // namespace

bool HyperHypercube::possible(std::int64_t n, std::int64_t k) {
  std::vector<std::int64_t> factors;
  return divide_out(n, k, factors) == 1;
}

HyperHypercube::HyperHypercube(std::int64_t n, std::int64_t k) {
  divide_out(n, k, factors_);
  if (factors_.empty()) factors_.push_back(1);
  std::sort(factors_.begin(), factors_.end());
  std::int64_t stride = 1;
  for (const std::int64_t factor : factors_) {
    strides_.push_back(stride);
    stride *= factor;
  }
}

void HyperHypercube::fill(int round, std::int64_t index, std::int64_t origin, std::int64_t spacing,
                          Exchange& out) const {
  const std::int64_t factor = factors_[static_cast<std::size_t>(round)];
  const std::int64_t stride = strides_[static_cast<std::size_t>(round)];
  const std::int64_t digit = index / stride % factor;
  out.self_weight = 1.0 / static_cast<double>(factor);
  for (std::int64_t other = 0; other < factor; ++other)
    if (other != digit)
      out.add_pair(static_cast<Rank>(origin + spacing * (index + (other - digit) * stride)), out.self_weight);
}

std::int64_t HyperHypercube::pairs_before(int round, std::int64_t index) const {
  if (factors_[static_cast<std::size_t>(round)] == 1) return 0;
  const std::int64_t stride = strides_[static_cast<std::size_t>(round)];
  return index / (2 * stride) * stride + std::min(index % (2 * stride), stride);
}

Family hyper_hypercube() {
  return {
      .name = "hyper-hypercube",
      .summary = "mixed-radix hypercube; every prime factor of n at most k+1",
      .parameters = {{"k", "1", "peers a round"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const std::int64_t k = parameters.integer("k", 1, INT32_MAX);
        if (!HyperHypercube::possible(setting.n, k))
          throw InvalidArgument(
              fmt::format("{}: n = {} has a prime factor above k+1 = {}; base(k={}) takes any n",
                          parameters.owner(), setting.n, k + 1, k));
        return std::make_shared<HyperHypercubeSchedule>(setting.n, k);
      },
      .changing = true};
}

}  // namespace starling::topology::family
