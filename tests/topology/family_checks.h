#pragma once

#include <string>

#include "starling/base/types.h"

namespace starling::topology {

enum class Sums { rows, columns, both };

/// Properties that the specification states for every round of a family.
struct Claims {
  Sums sums = Sums::both;
  bool symmetric = false;
  int hears = 0;  // the largest number of sources of a rank; 0: no claim
  int tells = 0;
};

/// Compares a period (at most its first 100 rounds) and some later rounds with the dense reference, entry by
/// entry, and checks the claims. Stops at the first failure.
void expect_equals_reference(const std::string& text, Rank n, const Claims& claims, double tolerance = 1e-12);

}  // namespace starling::topology
