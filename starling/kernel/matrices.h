#pragma once

#include <cstddef>
#include <string>

#include "starling/base/buffer.h"
#include "starling/base/error.h"

// Products of matrices and low-rank factors, of float32 or float64, with the same bits on every instruction
// set and on devices. M is rows x columns, one row after the other. P has rows x rank elements and Q has
// columns x rank, each one column after the other.

namespace starling::kernel {

struct FactorShape {
  std::size_t rows;
  std::size_t columns;
  std::size_t rank;
};

/// The shape that the lengths of P and Q imply. Throws InvalidArgument if M has another one, or for another
/// type.
inline FactorShape factor_shape(const char* operation, ConstBuffer m, ConstBuffer p, ConstBuffer q,
                                std::size_t rank) {
  if ((m.dtype != DType::float32 && m.dtype != DType::float64) || p.dtype != m.dtype || q.dtype != m.dtype)
    throw InvalidArgument(std::string(operation) + ": M, P and Q must all be float32 or all float64, not " +
                          name(m.dtype) + ", " + name(p.dtype) + " and " + name(q.dtype));
  if (rank == 0 || p.count % rank != 0 || q.count % rank != 0 || m.count != p.count / rank * (q.count / rank))
    throw InvalidArgument(std::string(operation) + ": " + std::to_string(m.count) +
                          " elements cannot be the product of factors of " + std::to_string(p.count) +
                          " and " + std::to_string(q.count) + " elements with rank " + std::to_string(rank));
  return {p.count / rank, q.count / rank, rank};
}

/// The same for one factor, of `rank` columns.
inline void check_factor(const char* operation, ConstBuffer factor, std::size_t rank) {
  if (factor.dtype != DType::float32 && factor.dtype != DType::float64)
    throw InvalidArgument(std::string(operation) + ": factors are float32 or float64, not " +
                          name(factor.dtype));
  if (rank == 0 || factor.count % rank != 0)
    throw InvalidArgument(std::string(operation) + ": " + std::to_string(factor.count) +
                          " elements are not a factor of rank " + std::to_string(rank));
}

/// The rows of M whose products M^T P adds up in the elements' type; the sum number s of these counts to the
/// float64 sum number s modulo 8.
inline constexpr std::size_t kSlabRows = 128;

// On the host.

/// P <- M Q, by dot().
void multiply(Buffer p, ConstBuffer m, ConstBuffer q, std::size_t rank);
/// Q <- M^T P.
void multiply_transposed(Buffer q, ConstBuffer m, ConstBuffer p, std::size_t rank);
/// M <- P Q^T, added up in the elements' type.
void multiply_factors(Buffer m, ConstBuffer p, ConstBuffer q, std::size_t rank);
/// Makes the columns orthonormal, from the first on (modified Gram-Schmidt). A column that becomes zero stays
/// zero. Products are added to 1024 float64 sums by index, folded as squares are (kernel/square_sum.h).
void orthonormalize(Buffer factor, std::size_t rank);

}  // namespace starling::kernel
