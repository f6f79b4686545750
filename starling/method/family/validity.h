#pragma once

#include <string>

#include "starling/method/method.h"

// What methods demand of schedules; each refusal names families that work.
namespace starling::methods {

/// The same weights in every step, w_ij = w_ji.
void require_fixed_symmetric(const Schedule& schedule, const std::string& method);
/// Weights whose columns sum to one in every step, so that the sum over the ranks stays. Schedules that are
/// drawn anew, or too long to look through, pass.
void require_column_sums(const Schedule& schedule, const std::string& method);
/// The same weights in every step, and no means within groups: what a rank knows of a neighbour stays true.
void require_fixed_neighbors(const Schedule& schedule, const std::string& method);
/// Neighbours that are known beforehand: not drawn anew in every step.
void require_known_neighbors(const Schedule& schedule, const std::string& method);
/// Every edge in both directions, in the union of all steps.
void require_both_directions(const Schedule& schedule, const std::string& method);
/// Everybody meets at most one other rank in a step, which meets it.
void require_matchings(const Schedule& schedule, const std::string& method);
/// The smallest eigenvalue of fixed symmetric weights, which require_fixed_symmetric() has let pass; 0 where
/// it could not be found.
double least_eigenvalue_of(const Schedule& schedule);

/// Zeros.
void forget(MutableBlock block);

}  // namespace starling::methods
