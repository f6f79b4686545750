#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/integer.h"
#include "starling/topology/circulant.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// One round of CECA-k: block a is the mean of m+1 values, b of m (without the rank's own); the digit of n-1
/// is the number of a blocks received.
struct CecaRound {
  std::int64_t m = 0;
  std::int64_t digit = 0;
  std::int64_t next = 0;  // m after the round

  // Coefficients of received blocks, by the block sent (a, b) and the block it is added to.
  double a_into_a() const { return static_cast<double>(m + 1) / static_cast<double>(next + 1); }
  double b_into_a() const { return static_cast<double>(m) / static_cast<double>(next + 1); }
  double a_into_b() const { return static_cast<double>(m + 1) / static_cast<double>(next); }
  double b_into_b() const { return static_cast<double>(m) / static_cast<double>(next); }

  void fill_own(Exchange& out) const {
    out.self_weight = a_into_a();
    out.self_weight_b = b_into_b();
  }
  Source source(Rank rank, Lane lane) const {
    return lane == Lane::a ? Source{rank, lane, a_into_a(), a_into_b()}
                           : Source{rank, lane, b_into_a(), b_into_b()};
  }
};

std::vector<CecaRound> ceca_rounds(Rank n, std::int64_t k) {
  std::vector<std::int64_t> digits;  // of n-1 in base k+1, least first
  for (std::int64_t rest = n - 1; rest > 0; rest /= k + 1) digits.push_back(rest % (k + 1));
  std::vector<CecaRound> rounds;
  std::int64_t m = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    rounds.push_back({m, *digit, (k + 1) * m + *digit});
    m = rounds.back().next;
  }
  return rounds;
}

class Ceca final : public Circulant {
 public:
  Ceca(Rank n, std::int64_t k) : Circulant(n), k_(k), rounds_(ceca_rounds(n, k)) {}
  Step period() const override { return std::max<Step>(1, static_cast<Step>(rounds_.size())); }
  Mixing mixing() const override { return Mixing::two_block; }
  std::optional<double> known_rho() const override { return 0; }

 private:
  void fill_round(Step step, Exchange& out) const override {
    if (rounds_.empty()) return;
    const CecaRound& round = rounds_[static_cast<std::size_t>(step % period())];
    const std::int64_t m = round.m;
    const std::int64_t d = round.digit;
    round.fill_own(out);
    for (std::int64_t j = 1; j <= d; ++j)
      out.sources.push_back(round.source(wrap(-j * (m + 1), size()), Lane::a));
    for (std::int64_t j = 1; j <= k_ - d && m > 0; ++j)
      out.sources.push_back(round.source(wrap(-((d + 1) * (m + 1) - 1 + (j - 1) * m), size()), Lane::b));
  }

  std::int64_t k_;
  std::vector<CecaRound> rounds_;
};

/// CECA with symmetric pairs: partners swap a (digit 1) or b (digit 0).
class CecaPairs final : public Schedule {
 public:
  explicit CecaPairs(Rank n) : Schedule(n), rounds_(ceca_rounds(n, 1)) {}
  Step period() const override { return std::max<Step>(1, static_cast<Step>(rounds_.size())); }
  Mixing mixing() const override { return Mixing::two_block; }
  std::optional<double> known_rho() const override { return 0; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    if (rounds_.empty()) return;
    const CecaRound& round = rounds_[static_cast<std::size_t>(step % period())];
    const std::int64_t offset = 2 * round.m + 1;
    const Rank partner = wrap(rank % 2 == 1 ? rank + offset : rank - offset, size());
    const Lane lane = round.digit == 1 ? Lane::a : Lane::b;
    round.fill_own(out);
    out.sources.push_back(round.source(partner, lane));
    out.destinations.push_back({partner, lane});
  }

  std::vector<CecaRound> rounds_;
};

}  // namespace

Family ceca() {
  return {
      .name = "ceca",
      .summary = "exact for any n in ceil(log_{k+1} n) rounds, the fewest possible; two blocks per rank",
      .parameters = {{"k", "1", "peers a round"}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        return std::make_shared<Ceca>(setting.n, parameters.integer("k", 1, 1 << 16));
      },
      .changing = true};
}

Family ceca_1p() {
  return {
      .name = "ceca-1p",
      .summary = "CECA with symmetric pairs; n even",
      .parameters = {},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        if (setting.n > 1 && setting.n % 2 != 0)
          throw InvalidArgument(
              fmt::format("{}: n = {} is odd; ceca takes any n", parameters.owner(), setting.n));
        return std::make_shared<CecaPairs>(setting.n);
      },
      .changing = true};
}

}  // namespace starling::topology::family
