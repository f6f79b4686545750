#include <cmath>

#include "starling/base/integer.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {

Family exponential() {
  return {
      .name = "exponential",
      .summary = "i receives from i + base^p for all powers below n, uniform",
      .parameters = {{"base", "2", "at least 2"}, weights_parameter("uniform")},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const Rank n = setting.n;
        const std::int64_t base = parameters.integer("base", 2, INT32_MAX);
        std::vector<Rank> offsets;
        for (std::int64_t hop = 1; hop < n; hop *= base) offsets.push_back(static_cast<Rank>(hop));
        std::optional<double> rho;
        if (n <= 2) rho = 0;
        if (n > 2 && base == 2 && n % 2 == 0) rho = 1 - 2.0 / (ceil_log2(n) + 1);
        return weighted_circulant(n, std::move(offsets), parameters, /*directed=*/n > 3, rho);
      }};
}

Family symmetric_exponential() {
  return {
      .name = "symmetric-exponential",
      .summary = "i with i +- base^p up to n/2, uniform",
      .parameters = {{"base", "4", "at least 2"}, weights_parameter("uniform")},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const Rank n = setting.n;
        const std::int64_t base = parameters.integer("base", 2, INT32_MAX);
        std::vector<Rank> offsets;
        for (std::int64_t hop = 1; 2 * hop <= n; hop *= base) {
          offsets.push_back(static_cast<Rank>(hop));
          if (2 * hop < n) offsets.push_back(static_cast<Rank>(n - hop));
        }
        if (n == 1) offsets.clear();
        return weighted_circulant(n, std::move(offsets), parameters, /*directed=*/false);
      }};
}

}  // namespace starling::topology::family
