#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "starling/base/integer.h"
#include "starling/base/random.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

enum class Order { cyclic, permuted, random };

class OnePeerExponential final : public Circulant {
 public:
  OnePeerExponential(Rank n, Order order, std::uint64_t seed)
      : Circulant(n), hops_(ceil_log2(n)), order_(order), seed_(seed) {}

  Step period() const override {
    if (hops_ <= 1) return 1;
    return order_ == Order::random ? 0 : hops_;
  }
  bool random() const override { return order_ != Order::cyclic && hops_ > 1; }

  std::optional<double> known_rho() const override {
    if ((order_ != Order::random || hops_ <= 1) && is_power_of_two(size())) return 0;
    return std::nullopt;
  }

  std::optional<double> known_mean_square_rho() const override {
    if (order_ != Order::random) return std::nullopt;
    if (size() <= 2) return 0;
    if (size() % 2 == 0) return std::sqrt(1 - 1.0 / hops_);
    // E||(I + P)x||^2 / 4 for a rotation P by a random power of two, largest over the Fourier modes.
    if (size() > (1 << 20)) return std::nullopt;
    double largest = 0;
    for (Rank k = 1; k <= size() / 2; ++k) {
      double sum = 0;
      for (int p = 0; p < hops_; ++p)
        sum += std::cos(2 * std::numbers::pi *
                        static_cast<double>((static_cast<std::int64_t>(k) << p) % size()) / size());
      largest = std::max(largest, 0.5 + 0.5 * sum / hops_);
    }
    return std::sqrt(largest);
  }

 private:
  void fill_round(Step step, Exchange& out) const override {
    if (hops_ == 0) return;
    out.self_weight = 0.5;
    out.add_source(static_cast<Rank>(std::int64_t{1} << exponent(step)), 0.5);
  }

  int exponent(Step step) const {
    const int at = static_cast<int>(step % hops_);
    if (order_ == Order::cyclic) return at;
    if (order_ == Order::random)
      return static_cast<int>(Random(seed_, static_cast<std::uint64_t>(step), stream::kOnePeer)
                                  .below(static_cast<std::uint32_t>(hops_)));
    // A Fisher-Yates shuffle, only as far as needed.
    Random random(seed_, static_cast<std::uint64_t>(step / hops_), stream::kOnePeer);
    std::array<std::uint8_t, 32> order;
    std::iota(order.begin(), order.end(), std::uint8_t{0});
    for (int i = 0; i <= at; ++i) {
      const auto pick = static_cast<std::size_t>(i) + random.below(static_cast<std::uint32_t>(hops_ - i));
      std::swap(order[static_cast<std::size_t>(i)], order[pick]);
    }
    return order[static_cast<std::size_t>(at)];
  }

  int hops_;
  Order order_;
  std::uint64_t seed_;
};

class KPeerExponential final : public Circulant {
 public:
  KPeerExponential(Rank n, std::int64_t k) : Circulant(n), k_(k), rounds_(ceil_log(k + 1, n)) {}

  Step period() const override { return rounds_ > 0 ? rounds_ : 1; }
  std::optional<double> known_rho() const override {
    if (power(k_ + 1, rounds_) % size() == 0) return 0;
    return std::nullopt;
  }

 private:
  void fill_round(Step step, Exchange& out) const override {
    if (rounds_ == 0) return;
    const std::int64_t stride = power(k_ + 1, static_cast<int>(step % rounds_));
    const double weight = 1.0 / static_cast<double>(k_ + 1);
    out.self_weight = weight;
    // Hops are below 2n for small k; weights of equal senders add up, a hop of 0 adds to the own weight.
    for (std::int64_t j = 1; j <= k_; ++j) {
      const Rank hop = static_cast<Rank>(j * stride % size());
      if (hop == 0) {
        out.self_weight += weight;
      } else if (j * stride < size()) {
        out.add_source(hop, weight);
      } else {
        out.add_source_weight(hop, weight);
      }
    }
  }

  std::int64_t k_;
  int rounds_;
};

}  // namespace

Family one_peer_exponential() {
  return {
      .name = "one-peer-exponential",
      .summary = "i receives from i + 2^(t mod tau), halves",
      .parameters = {{"order", "cyclic", "order of the hops: cyclic, permuted in each period, or random"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const std::string& name = parameters.choice("order", {"cyclic", "permuted", "random"});
        const Order order = name == "cyclic"     ? Order::cyclic
                            : name == "permuted" ? Order::permuted
                                                 : Order::random;
        return std::make_shared<OnePeerExponential>(setting.n, order, parameters.seed());
      },
      .random = true,
      .changing = true};
}

Family k_peer_exponential() {
  return {
      .name = "k-peer-exponential",
      .summary = "i receives from i + j (k+1)^r, j = 1..k",
      .parameters = {{"k", "1", "peers a round"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        return std::make_shared<KPeerExponential>(setting.n, parameters.integer("k", 1, 1 << 16));
      },
      .changing = true};
}

}  // namespace starling::topology::family
