#pragma once

#include <string>

#include "starling/base/types.h"

namespace starling::topology {

enum class Sums { rows, columns, both };

/// What the specification says about every round of a family.
struct Claims {
  Sums sums = Sums::both;
  bool symmetric = false;
  int hears = 0;  // the most others that a rank hears; 0: no claim
  int tells = 0;
};

/// Compares a period (its first 100 rounds at most) and some later rounds with the dense reference, entry by
/// entry, and checks the claims. Stops at the first failure.
void expect_equals_reference(const std::string& text, Rank n, const Claims& claims, double tolerance = 1e-12);

}  // namespace starling::topology
