#pragma once

#include <span>
#include <vector>

#include "starling/kernel/term.h"

namespace starling::kernel {

/// Waits until terms on a device have arrived, and returns the terms without their flags. Lost terms are left
/// out; the first term without a flag gets their weights.
std::vector<Term> await_terms(std::span<const Term> terms);

}  // namespace starling::kernel
