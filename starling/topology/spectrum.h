#pragma once

#include <optional>
#include <span>
#include <vector>

#include "starling/topology/circulant.h"
#include "starling/topology/graph.h"
#include "starling/topology/matrix.h"

namespace starling::topology {

/// ||W_last ... W_first - J||_2; empty if the iteration did not converge.
std::optional<double> deviation_norm(std::span<const RoundMatrix> rounds);

/// The same norm for `count` rounds of a circulant schedule, from its eigenvalues: circulants commute and are
/// normal.
double circulant_deviation_norm(const Circulant& schedule, Step first, Step count);

/// A unit vector that maximizes the mean of ||(W - J) v||^2 over the given rounds.
std::optional<std::vector<double>> worst_direction(std::span<const RoundMatrix> samples);

/// The second largest modulus of the eigenvalues, the rate at which W^t converges; for n up to `kDenseLimit`.
std::optional<double> second_modulus(const RoundMatrix& round);

/// The least eigenvalue of a symmetric round.
std::optional<double> least_eigenvalue(const RoundMatrix& round);
double circulant_least_eigenvalue(const Circulant& schedule, Step step);

/// The extreme eigenvalues of a Laplacian, without the zero of the constant vector.
struct Extremes {
  double least = 0;
  double most = 0;
};
Extremes laplacian_extremes(const Graph& graph);
Extremes circulant_laplacian_extremes(Rank n, std::span<const Rank> offsets);

/// The largest n whose matrices are made dense.
inline constexpr Rank kDenseLimit = 128;

}  // namespace starling::topology
