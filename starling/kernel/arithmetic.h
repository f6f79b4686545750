#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "starling/base/buffer.h"
#include "starling/kernel/reduce.h"
#include "starling/kernel/term.h"
#include "starling/kernel/update.h"

namespace starling::kernel {

/// A part of a vector that is elsewhere; see Arithmetic::gather().
struct GatheredPart {
  const void* from = nullptr;  // null: zeros
  std::size_t begin = 0;       // in the vector
  std::size_t count = 0;
};

/// Vector arithmetic in one kind of memory. Methods reach it through their block, so they run wherever the
/// block is: on the host as the SIMD kernels of this folder, on a device as kernels enqueued on the calling
/// thread's stream (kernel/device.h), where only functions that return a number wait. The bits are the same
/// everywhere. Buffers of one call have the same number of elements. Thread-safe.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  /// Allocates zeroed memory, aligned for every kernel.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) const = 0;

  /// out <- 0.
  virtual void zero(Buffer out) const = 0;
  /// out <- in, converted if the types differ; see kernel/convert.h.
  virtual void copy(Buffer out, ConstBuffer in) const = 0;
  /// out[k * out_step] <- in[k * in_step], of the same type, for all k with k * in_step < in.count. The
  /// elements of `out` in between stay unchanged.
  virtual void copy_strided(Buffer out, std::size_t out_step, ConstBuffer in, std::size_t in_step) const = 0;
  /// out <- the parts, of its type and kind of memory; what lies between them stays unchanged.
  virtual void gather(Buffer out, std::span<const GatheredPart> parts) const = 0;
  virtual void swap(Buffer a, Buffer b) const = 0;
  /// out <- the sum of weight * term, see kernel/combine.h; `out` may be one of the terms.
  virtual void combine(Buffer out, std::span<const Term> terms) const = 0;
  /// out <- x + the sum of weight * (term - own), with terms and own of type `message`; without x (empty),
  /// only the sum. See combine_around() in kernel/combine.h.
  virtual void combine_around(DType message, Buffer out, ConstBuffer x, Term own,
                              std::span<const Term> others) const = 0;
  /// accumulator <- accumulator (sum, min or max) in.
  virtual void reduce(Reduction reduction, Buffer accumulator, ConstBuffer in) const = 0;
  /// x <- factor * x and x <- x / number.
  virtual void scale(Buffer x, double factor) const = 0;
  virtual void divide(Buffer x, double number) const = 0;
  /// Computed in float64, with the same bits on every instruction set.
  virtual double sum_of_squares(ConstBuffer x) const = 0;

  // Numbers that stay where the vectors are, so that nobody waits for a device: one float64 in that memory.

  /// sum <- sum + factor * factor * the sum of squares of x, any floating vector.
  virtual void add_squares(Buffer sum, ConstBuffer x, double factor) const = 0;
  /// x <- factor * min(1, limit / (sqrt(squares) + 1e-6)) * x.
  virtual void clip(Buffer x, double factor, ConstBuffer squares, double limit) const = 0;
  /// out <- (1 / number) * in if the number is positive; otherwise `out` stays unchanged.
  virtual void divide_by(Buffer out, ConstBuffer in, ConstBuffer number) const = 0;

  /// Whether no element is infinite or not a number.
  virtual bool all_finite(ConstBuffer x) const = 0;

  // Element-wise rules for float32 and float64; see kernel/element_rules.h and kernel/update.h.

  /// `v` may be empty; then only m changes.
  virtual void moments(const MomentRule& rule, ConstBuffer x, ConstBuffer gradient, Buffer m,
                       Buffer v) const = 0;
  virtual void moment_step(const MomentStepRule& rule, Buffer x, ConstBuffer m, ConstBuffer v) const = 0;

  // The passes of local optimizers; see kernel/update.h.

  virtual void sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first) const = 0;
  virtual void adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v,
                           long t) const = 0;
  virtual void accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, Buffer sum,
                                 long t, long s, bool fold) const = 0;

  // Products of matrices and low-rank factors; see kernel/matrices.h.

  /// P <- M Q, Q <- M^T P and M <- P Q^T.
  virtual void multiply(Buffer p, ConstBuffer m, ConstBuffer q, std::size_t rank) const = 0;
  virtual void multiply_transposed(Buffer q, ConstBuffer m, ConstBuffer p, std::size_t rank) const = 0;
  virtual void multiply_factors(Buffer m, ConstBuffer p, ConstBuffer q, std::size_t rank) const = 0;
  virtual void orthonormalize(Buffer factor, std::size_t rank) const = 0;

  /// A mark for UpdatePass::nonfinite, initially false, that passes in this memory can set and the host can
  /// read. A device may set it after the call has returned.
  virtual std::shared_ptr<bool> make_mark() const = 0;
};

/// The arithmetic for buffers in this kind of memory; throws InvalidArgument if there is none.
const Arithmetic& arithmetic_in(MemoryKind memory);

/// A buffer that owns its memory, initially zeroed.
class OwnedBuffer {
 public:
  OwnedBuffer() = default;
  OwnedBuffer(DType dtype, std::size_t count, MemoryKind memory = MemoryKind::host);

  const Buffer& buffer() const { return buffer_; }

 private:
  std::shared_ptr<void> memory_;
  Buffer buffer_;
};

}  // namespace starling::kernel
