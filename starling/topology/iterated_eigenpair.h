#pragma once

#include <functional>
#include <optional>

#include <Eigen/Core>

#include "starling/base/floors.h"

namespace starling::topology {

struct EigenPair {
  double value;
  Eigen::VectorXd vector;
};

enum class EigenEnd { least, largest };

/// An extreme eigenvalue, and its vector, of a symmetric map of n numbers that is given as y = map(x), by a
/// Lanczos iteration. Nothing when it did not converge.
std::optional<EigenPair> iterated_eigenpair(Eigen::Index n,
                                            const std::function<void(const double* x, double* y)>& map,
                                            EigenEnd end);

}  // namespace starling::topology
