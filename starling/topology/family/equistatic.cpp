#include "starling/topology/family/equistatic.h"

#include "starling/base/integer.h"
#include "starling/base/random.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {

std::vector<Rank> equistatic_draws(Rank n, std::int64_t m, std::uint64_t seed) {
  std::vector<Rank> draws;
  Random random(seed, 0, stream::kEquiStatic);
  for (std::int64_t i = 0; i < m && n > 1; ++i)
    draws.push_back(1 + static_cast<Rank>(random.below(static_cast<std::uint32_t>(n - 1))));
  return draws;
}

namespace {

class EquiStatic final : public Circulant {
 public:
  EquiStatic(Rank n, const std::vector<Rank>& draws, bool undirected) : Circulant(n) {
    row_.self_weight = 1.0 / n;
    const double share = (n - 1.0) / n / static_cast<double>(draws.size());
    for (const Rank u : draws) {
      row_.add_source_weight(n - u, undirected ? share / 2 : share);  // i receives from i - u
      if (undirected) row_.add_source_weight(u, share / 2);
    }
  }

 private:
  void fill_round(Step /*step*/, Exchange& out) const override {
    out.self_weight = row_.self_weight;
    out.sources.assign(row_.sources.begin(), row_.sources.end());
  }
  Exchange row_;
};

Family equistatic(const std::string& name, const std::string& summary, bool undirected) {
  return {.name = name,
          .summary = summary,
          .parameters = {{"m", "auto", "draws; ceil(log2 n) by default"}},
          .make = [undirected](const Parameters& parameters,
                               const TopologySetting& setting) -> std::shared_ptr<Schedule> {
            const std::int64_t m =
                parameters.optional_integer("m", 1, 1 << 20).value_or(ceil_log2(setting.n));
            return std::make_shared<EquiStatic>(setting.n, equistatic_draws(setting.n, m, parameters.seed()),
                                                undirected);
          },
          .random = true};
}

}  // namespace

Family d_equistatic() {
  return equistatic("d-equistatic", "EquiTopo, directed: the mean of m random rotations", false);
}
Family u_equistatic() {
  return equistatic("u-equistatic", "EquiTopo, undirected: the same draws, both ways", true);
}

}  // namespace starling::topology::family
