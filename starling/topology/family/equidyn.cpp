#include <cmath>
#include <numbers>

#include "starling/base/integer.h"
#include "starling/base/random.h"
#include "starling/topology/circulant.h"
#include "starling/topology/family/equistatic.h"
#include "starling/topology/family/list.h"
#include "starling/topology/matching.h"

namespace starling::topology::family {
namespace {

/// Draws EquiDyn's rotation u: uniform on 1 .. n-1, or one of m EquiStatic draws.
class Rotation {
 public:
  Rotation(Rank n, std::vector<Rank> draws, std::uint64_t seed)
      : n_(n), draws_(std::move(draws)), seed_(seed) {}

  Random random(Step step) const { return {seed_, static_cast<std::uint64_t>(step), stream::kEquiDyn}; }
  Rank draw(Random& random) const {
    if (draws_.empty()) return 1 + static_cast<Rank>(random.below(static_cast<std::uint32_t>(n_ - 1)));
    return draws_[random.below(static_cast<std::uint32_t>(draws_.size()))];
  }
  const std::vector<Rank>& draws() const { return draws_; }

 private:
  Rank n_;
  std::vector<Rank> draws_;
  std::uint64_t seed_;
};

class OdEquiDyn final : public Circulant {
 public:
  OdEquiDyn(Rank n, double weight, Rotation rotation)
      : Circulant(n), weight_(weight), rotation_(std::move(rotation)) {}
  Step period() const override { return random() ? 0 : 1; }
  bool random() const override { return size() > 2; }

  std::optional<double> known_mean_square_rho() const override {
    // W = (1-w) I + w P with a random rotation P: E||Wx||^2 = ((1-w)^2 + w^2 + 2 w (1-w) Re E[P]) ||x||^2 per
    // Fourier mode.
    const double kept = (1 - weight_) * (1 - weight_) + weight_ * weight_;
    const double cross = 2 * weight_ * (1 - weight_);
    if (size() == 1) return 0;
    if (rotation_.draws().empty()) return std::sqrt(std::max(0.0, kept - cross / (size() - 1)));
    if (size() > (1 << 20)) return std::nullopt;
    double largest = -1;
    for (Rank k = 1; k <= size() / 2; ++k) {
      double sum = 0;
      for (const Rank u : rotation_.draws())
        sum += std::cos(2 * std::numbers::pi *
                        static_cast<double>(static_cast<std::int64_t>(k) * u % size()) / size());
      largest = std::max(largest, sum / static_cast<double>(rotation_.draws().size()));
    }
    return std::sqrt(std::max(0.0, kept + cross * largest));
  }

 private:
  void fill_round(Step step, Exchange& out) const override {
    if (size() == 1) return;
    Random random = rotation_.random(step);
    out.self_weight = 1 - weight_;
    out.add_source(size() - rotation_.draw(random), weight_);  // i receives from i - u
  }

  double weight_;
  Rotation rotation_;
};

class OuEquiDyn final : public Matching {
 public:
  OuEquiDyn(Rank n, double weight, Rotation rotation) : Matching(n, weight), rotation_(std::move(rotation)) {}
  Step period() const override { return random() ? 0 : 1; }
  bool random() const override { return size() > 2; }

  Rank partner(Step step, Rank rank) const override {
    if (size() == 1) return rank;
    const auto [u, start] = draw(step);
    const Rank r = sub_mod(rank, start, size());
    return add_mod(relative_partner(r, u), start, size());
  }

  void partners(Step step, std::span<Rank> out) const override {
    const auto [u, start] = draw_or_identity(step);
    // The greedy pairing consists of runs: [first, first + gap) pairs with [first + gap, first + 2 gap), and
    // so on.
    const auto pair_runs = [&, s = start](Rank begin, Rank end, Rank gap) {
      Rank first = begin;
      for (; first < end - gap; first += 2 * gap)
        for (Rank r = first; r < std::min(first + gap, end - gap); ++r) {
          const Rank i = add_mod(r, s, size());
          const Rank j = add_mod(r + gap, s, size());
          out[static_cast<std::size_t>(i)] = j;
          out[static_cast<std::size_t>(j)] = i;
        }
    };
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Rank>(i);
    const std::int64_t twice = 2 * static_cast<std::int64_t>(u);
    if (size() == 1) return;
    if (twice <= size()) {
      pair_runs(0, size(), u);
    } else {
      const Rank d = size() - u;
      for (Rank r = 0; r < d; ++r) {
        const Rank i = add_mod(r, start, size());
        const Rank j = add_mod(r + u, start, size());
        out[static_cast<std::size_t>(i)] = j;
        out[static_cast<std::size_t>(j)] = i;
      }
      pair_runs(d, u, d);
    }
  }

  std::optional<double> known_mean_square_rho() const override;

 private:
  struct Draw {
    Rank u;
    Rank start;
  };
  Draw draw(Step step) const {
    Random random = rotation_.random(step);
    const Rank u = rotation_.draw(random);
    return {u, static_cast<Rank>(random.below(static_cast<std::uint32_t>(size())))};
  }
  Draw draw_or_identity(Step step) const { return size() == 1 ? Draw{0, 0} : draw(step); }

  Rank relative_partner(Rank r, Rank u) const;

  Rotation rotation_;
};

// The partner of r when the greedy loop starts at 0.
Rank OuEquiDyn::relative_partner(Rank r, Rank u) const {
  const auto in_runs = [](Rank at, Rank begin, Rank end, Rank gap) {
    if ((at - begin) / gap % 2 != 0) return at - gap;
    return at < end - gap ? at + gap : at;
  };
  if (u <= size() - u) return in_runs(r, 0, size(), u);
  const Rank d = size() - u;
  if (r < d) return r + u;
  if (r >= u) return r - u;
  return in_runs(r, d, u, d);
}

std::optional<double> OuEquiDyn::known_mean_square_rho() const {
  // W = (1-w) I + w Q, Q an involution: E[W^T W] = (..) I + 2 w (1-w) E[Q]. With a uniform start E[Q] is
  // circulant; counting all u and all positions gives its first row.
  constexpr Rank kLargest = 8192;
  const Rank n = size();
  if (n > kLargest) return std::nullopt;
  if (n == 1) return 0;
  std::vector<Rank> rotations = rotation_.draws();
  if (rotations.empty())
    for (Rank u = 1; u < n; ++u) rotations.push_back(u);
  std::vector<double> row(static_cast<std::size_t>(n), 0.0);
  const double share = 1.0 / (static_cast<double>(rotations.size()) * n);
  for (const Rank u : rotations)
    for (Rank r = 0; r < n; ++r)
      row[static_cast<std::size_t>(sub_mod(relative_partner(r, u), r, n))] += share;
  std::vector<double> cosine(static_cast<std::size_t>(n));
  for (Rank i = 0; i < n; ++i) cosine[static_cast<std::size_t>(i)] = std::cos(2 * std::numbers::pi * i / n);
  double largest = -1;
  for (Rank k = 1; k <= n / 2; ++k) {
    double sum = 0;
    std::size_t angle = 0;
    for (const double value : row) {
      sum += value * cosine[angle];
      angle += static_cast<std::size_t>(k);
      if (angle >= cosine.size()) angle -= cosine.size();
    }
    largest = std::max(largest, sum);
  }
  const double w = weight();
  return std::sqrt(std::max(0.0, (1 - w) * (1 - w) + w * w + 2 * w * (1 - w) * largest));
}

template <typename Dynamic>
Family equidyn(const std::string& name, const std::string& summary) {
  return {
      .name = name,
      .summary = summary,
      .parameters = {{"eta", "auto", "step of the mixing; n / (2 (n-1)), which gives halves, by default"},
                     {"m", "auto", "draw from m EquiStatic rotations instead of all"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const Rank n = setting.n;
        const auto eta = parameters.optional_number("eta", 0, 1);
        const auto m = parameters.optional_integer("m", 1, 1 << 20);
        Rotation rotation(n, m ? equistatic_draws(n, *m, parameters.seed()) : std::vector<Rank>{},
                          parameters.seed());
        return std::make_shared<Dynamic>(n, eta ? *eta * (n - 1) / n : 0.5, std::move(rotation));
      },
      .random = true,
      .changing = true};
}

}  // namespace

Family od_equidyn() {
  return equidyn<OdEquiDyn>("od-equidyn", "one-peer EquiTopo, directed: i receives from i - u, u random");
}
Family ou_equidyn() {
  return equidyn<OuEquiDyn>("ou-equidyn", "one-peer EquiTopo, undirected: greedy pairs (i, i + u), u random");
}

}  // namespace starling::topology::family
