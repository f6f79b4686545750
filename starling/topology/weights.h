#pragma once

#include <string>
#include <vector>

#include "starling/base/parameters.h"

namespace starling::topology {

/// How a graph's edges get their weights.
enum class Weights {
  metropolis,  // 1 / (1 + larger degree), rest on the diagonal: doubly stochastic, any undirected graph
  uniform,     // 1 / (in-degree + 1): rows sum to one, columns too on regular graphs only
  laplacian,   // I - a L with the best a = 2 / (lambda_2 + lambda_n); weights may be negative
  push,        // each sender gives 1 / (out-degree + 1) to every receiver: columns only, needs push-sum
};

/// The declaration of `weights=` for families whose graph leaves the choice.
Parameter weights_parameter(const std::string& fallback);
Weights read_weights(const Parameters& parameters);

}  // namespace starling::topology

namespace starling {
using topology::Weights;
}  // namespace starling
