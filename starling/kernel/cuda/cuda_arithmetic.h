#pragma once

#include "starling/kernel/arithmetic.h"

namespace starling::kernel::cuda {

/// Arithmetic in CUDA memory, by kernels on the calling thread's stream.
class CudaArithmetic final : public Arithmetic {
 public:
  std::shared_ptr<void> allocate(std::size_t bytes) const override;
  void zero(Buffer out) const override;
  void copy(Buffer out, ConstBuffer in) const override;
  void copy_strided(Buffer out, std::size_t out_step, ConstBuffer in, std::size_t in_step) const override;
  void gather(Buffer out, std::span<const GatheredPart> parts) const override;
  void swap(Buffer a, Buffer b) const override;
  void combine(Buffer out, std::span<const Term> terms) const override;
  void combine_around(DType message, Buffer out, ConstBuffer x, Term own,
                      std::span<const Term> others) const override;
  void reduce(Reduction reduction, Buffer accumulator, ConstBuffer in) const override;
  void scale(Buffer x, double factor) const override;
  void divide(Buffer x, double number) const override;
  double sum_of_squares(ConstBuffer x) const override;
  void add_squares(Buffer sum, ConstBuffer x, double factor) const override;
  void clip(Buffer x, double factor, ConstBuffer squares, double limit) const override;
  void divide_by(Buffer out, ConstBuffer in, ConstBuffer number) const override;
  bool all_finite(ConstBuffer x) const override;
  void moments(const MomentRule& rule, ConstBuffer x, ConstBuffer gradient, Buffer m,
               Buffer v) const override;
  void moment_step(const MomentStepRule& rule, Buffer x, ConstBuffer m, ConstBuffer v) const override;
  void sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first) const override;
  void adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, long t) const override;
  void accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, Buffer sum, long t,
                         long s, bool fold) const override;
  void multiply(Buffer p, ConstBuffer m, ConstBuffer q, std::size_t rank) const override;
  void multiply_transposed(Buffer q, ConstBuffer m, ConstBuffer p, std::size_t rank) const override;
  void multiply_factors(Buffer m, ConstBuffer p, ConstBuffer q, std::size_t rank) const override;
  void orthonormalize(Buffer factor, std::size_t rank) const override;
  std::shared_ptr<bool> make_mark() const override;
};

}  // namespace starling::kernel::cuda
