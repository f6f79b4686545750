#pragma once

#include <string>

#include "method/problem.h"

// Computes what a receiver decodes of a vector that was sent in fewer bits, from the codecs' formulas.

namespace starling::method {

/// `identity`, `fp16`, `top-k(fraction=0.4)` or `uint8`; all but the first convert to float32.
Vector decoded(const std::string& codec, const Vector& vector);

/// The nearest float16 number, ties to even, for magnitudes below its largest number.
Number as_half(Number exact);
/// Quantizes uniformly between the smallest and the largest element of each chunk of 2048.
Vector as_uint8(const Vector& vector);
/// The k elements of largest magnitude; of equal ones the first.
Vector as_top_k(const Vector& vector, std::size_t k);

}  // namespace starling::method
