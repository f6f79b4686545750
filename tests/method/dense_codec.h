#pragma once

#include <string>

#include "method/problem.h"

// What arrives of a vector that was sent in fewer bits, from the codecs' formulas.

namespace starling::method {

/// `identity`, `fp16`, `top-k(fraction=0.4)` or `uint8`; all but the first go through float32.
Vector decoded(const std::string& codec, const Vector& vector);

/// The nearest number of float16, ties to even, of a magnitude below its largest.
Number as_half(Number exact);
/// Uniform between the smallest and the largest of each chunk of 2048.
Vector as_uint8(const Vector& vector);
/// The k of largest magnitude; of equal ones the first.
Vector as_top_k(const Vector& vector, std::size_t k);

}  // namespace starling::method
