#pragma once

#include <span>
#include <vector>

#include "starling/kernel/term.h"

namespace starling::kernel {

/// The terms of a sum without their flags: waits until those on a device have arrived. Lost ones are left
/// out, and the first term without a flag gets their weights.
std::vector<Term> await_terms(std::span<const Term> terms);

}  // namespace starling::kernel
