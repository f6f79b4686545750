#include <cmath>

#include "starling/base/permutation.h"
#include "starling/topology/family/list.h"
#include "starling/topology/matching.h"

namespace starling::topology::family {
namespace {

/// A keyed permutation p puts the ranks in line; neighbors in the line pair. With odd n the last one idles.
class RandomMatching final : public Matching {
 public:
  RandomMatching(Rank n, std::uint64_t seed) : Matching(n, 0.5), seed_(seed) {}
  Step period() const override { return random() ? 0 : 1; }
  bool random() const override { return size() > 2; }

  Rank partner(Step step, Rank rank) const override {
    const Permutation p(size(), seed_, step);
    const Rank place = p.inverse(rank) ^ 1;
    return place < size() ? p(place) : rank;
  }

  void partners(Step step, std::span<Rank> out) const override {
    thread_local std::vector<Rank> line;
    thread_local std::vector<Rank> scratch;
    line.resize(out.size());
    Permutation(size(), seed_, step).table(line, scratch);
    for (std::size_t a = 0; a + 1 < line.size(); a += 2) {
      out[static_cast<std::size_t>(line[a])] = line[a + 1];
      out[static_cast<std::size_t>(line[a + 1])] = line[a];
    }
    if (line.size() % 2 != 0) out[static_cast<std::size_t>(line.back())] = line.back();
  }

  std::optional<double> known_mean_square_rho() const override {
    const double n = size();
    if (size() <= 2) return 0;
    return std::sqrt(size() % 2 == 0 ? (n - 2) / (2 * (n - 1)) : 0.5);
  }

 private:
  std::uint64_t seed_;
};

}  // namespace

Family random_matching() {
  return {
      .name = "random-matching",
      .summary = "a uniformly random perfect matching, halves",
      .parameters = {},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        return std::make_shared<RandomMatching>(setting.n, parameters.seed());
      },
      .random = true,
      .changing = true};
}

}  // namespace starling::topology::family
