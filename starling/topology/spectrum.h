#pragma once

#include <optional>
#include <span>
#include <vector>

#include "starling/topology/circulant.h"
#include "starling/topology/graph.h"
#include "starling/topology/matrix.h"

namespace starling::topology {

/// ||W_last ... W_first - J||_2. Nothing when the iteration did not converge.
std::optional<double> deviation_norm(std::span<const RoundMatrix> rounds);

/// The same for `count` rounds of a circulant schedule, from its eigenvalues: circulants commute and are
/// normal.
double circulant_deviation_norm(const Circulant& schedule, Step first, Step count);

/// A unit vector that maximizes the mean of ||(W - J) v||^2 over the given rounds.
std::optional<std::vector<double>> worst_direction(std::span<const RoundMatrix> samples);

/// The second largest modulus among the eigenvalues: the rate at which W^t settles. For n up to
/// `kDenseLimit`.
std::optional<double> second_modulus(const RoundMatrix& round);

/// The least eigenvalue of a symmetric round.
std::optional<double> least_eigenvalue(const RoundMatrix& round);
double circulant_least_eigenvalue(const Circulant& schedule, Step step);

/// The least and largest of a Laplacian's eigenvalues, the zero of the constant vector left out.
struct Extremes {
  double least = 0;
  double most = 0;
};
Extremes laplacian_extremes(const Graph& graph);
Extremes circulant_laplacian_extremes(Rank n, std::span<const Rank> offsets);

/// Up to this n matrices are made dense.
inline constexpr Rank kDenseLimit = 128;

}  // namespace starling::topology
