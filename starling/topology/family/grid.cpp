#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

#include "starling/base/error.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// rows x columns, rank = row * columns + column.
class Lattice final : public Graph {
 public:
  Lattice(Rank rows, Rank columns, bool wraps)
      : Graph(rows * columns), rows_(rows), columns_(columns), wraps_(wraps) {}

  void append_out(Rank rank, std::vector<Rank>& out) const override {
    const Rank row = rank / columns_;
    const Rank column = rank % columns_;
    const std::size_t before = out.size();
    const auto add = [&](Rank r, Rank c) {
      const Rank other = r * columns_ + c;
      // On a wrapped side of length two, left and right are the same neighbor: merge the parallel edges.
      if (other != rank &&
          std::find(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), other) == out.end())
        out.push_back(other);
    };
    if (wraps_ || row > 0) add((row + rows_ - 1) % rows_, column);
    if (wraps_ || column > 0) add(row, (column + columns_ - 1) % columns_);
    if (wraps_ || column + 1 < columns_) add(row, (column + 1) % columns_);
    if (wraps_ || row + 1 < rows_) add((row + 1) % rows_, column);
  }

  Rank out_degree(Rank rank) const override {
    return span(rank / columns_, rows_) + span(rank % columns_, columns_);
  }

 private:
  // The number of neighbors along one side of the given length.
  Rank span(Rank at, Rank length) const {
    if (wraps_) return std::min(length - 1, 2);
    return (at > 0 ? 1 : 0) + (at + 1 < length ? 1 : 0);
  }

  Rank rows_;
  Rank columns_;
  bool wraps_;
};

Rank read_rows(const Parameters& parameters, Rank n) {
  if (const auto rows = parameters.optional_integer("rows", 1, n)) {
    if (n % *rows != 0)
      throw InvalidArgument(fmt::format("{}: rows={} does not divide n = {}", parameters.owner(), *rows, n));
    return static_cast<Rank>(*rows);
  }
  auto rows = static_cast<Rank>(std::sqrt(static_cast<double>(n)));
  while (static_cast<std::int64_t>(rows) * rows > n) --rows;
  while (n % rows != 0) --rows;
  return rows;
}

double torus_rho(Rank rows, Rank columns) {
  if (rows > columns) std::swap(rows, columns);
  const auto turn = [](Rank k, Rank length) { return std::cos(2 * std::numbers::pi * k / length); };
  if (columns <= 3 && rows == 1) return 0;
  if (rows == 1) return 1.0 / 3 + 2.0 / 3 * turn(1, columns);
  if (columns == 2) return 1.0 / 3;             // the ring of four
  const double along_rows = rows == 2 ? 1 : 2;  // two rows are joined by one edge
  // |1 + s cos + 2 cos| is largest next to the all-ones mode or at the most negative corner.
  double largest = 0;
  for (const Rank a : {0, 1, rows / 2})
    for (const Rank b : {0, 1, columns / 2})
      if (a != 0 || b != 0)
        largest = std::max(largest, std::abs(1 + along_rows * turn(a, rows) + 2 * turn(b, columns)));
  return largest / (3 + along_rows);
}

Family lattice(const std::string& name, const std::string& summary, bool wraps) {
  return {.name = name,
          .summary = summary,
          .parameters = {{"rows", "auto", "a divisor of n; the largest not above sqrt(n) by default"},
                         weights_parameter("metropolis")},
          .make = [wraps](const Parameters& parameters, const TopologySetting& setting) {
            const Rank rows = read_rows(parameters, setting.n);
            const Rank columns = setting.n / rows;
            return weighted(std::make_shared<Lattice>(rows, columns, wraps), parameters,
                            wraps ? std::optional(torus_rho(rows, columns)) : std::nullopt);
          }};
}

}  // namespace

Family grid() {
  return lattice("grid", "rows x columns, no wrap", false);
}
Family torus() {
  return lattice("torus", "rows x columns with wrap", true);
}

}  // namespace starling::topology::family
