#pragma once

#include <span>

#include "starling/kernel/arithmetic.h"
#include "starling/kernel/codec_kernels.h"
#include "starling/kernel/cuda/on_device.h"
#include "starling/kernel/matrices.h"
#include "starling/kernel/reduce.h"
#include "starling/kernel/update.h"

// The functions that launch kernels, for CudaArithmetic, which has checked the arguments: addresses are in
// device memory, counts and numbers of terms are not zero, types suit the operation. A function waits only if
// it returns a number.

namespace starling::kernel::cuda {

/// Loads all kernels into the current context.
void load_kernels();

void combine(const OnDevice& here, DType dtype, void* out, std::span<const Term> terms, std::size_t count);
/// The first term is this rank's own message; `x` may be null.
void combine_around(const OnDevice& here, DType message, void* out, const void* x,
                    std::span<const Term> terms, std::size_t count);
/// For types that differ; throws InvalidArgument if there is no such conversion.
void convert(const OnDevice& here, DType from, const void* in, DType to, void* out, std::size_t count);
void reduce(const OnDevice& here, Reduction reduction, DType dtype, void* accumulator, const void* in,
            std::size_t count);
void divide(const OnDevice& here, DType dtype, void* data, double number, std::size_t count);
/// Elements of 1, 2, 4 or 8 bytes.
void gather(const OnDevice& here, std::size_t element, void* out, std::span<const GatheredPart> parts);
void swap(const OnDevice& here, void* a, void* b, std::size_t bytes);
/// Copies `count` elements of 1, 2, 4 or 8 bytes.
void copy_strided(const OnDevice& here, std::size_t element, void* out, std::size_t out_step, const void* in,
                  std::size_t in_step, std::size_t count);

double sum_of_squares(const OnDevice& here, DType dtype, const void* data, std::size_t count);
void add_squares(const OnDevice& here, DType dtype, const void* data, std::size_t count, double factor,
                 double* total);
void clip(const OnDevice& here, DType dtype, void* data, double factor, const double* squares, double limit,
          std::size_t count);
void divide_by(const OnDevice& here, DType dtype, void* out, const void* in, const double* number,
               std::size_t count);
bool all_finite(const OnDevice& here, DType dtype, const void* data, std::size_t count);

/// For float32 and float64; `v` may be null.
void moments(const OnDevice& here, DType dtype, const MomentRule& rule, const void* x, const void* gradient,
             void* m, void* v, std::size_t count);
void moment_step(const OnDevice& here, DType dtype, const MomentStepRule& rule, void* x, const void* m,
                 const void* v, std::size_t count);
/// `m` may be null without momentum.
void sgd_update(const OnDevice& here, const UpdatePass& pass, const SgdRule& rule, void* m, bool first);
void adam_update(const OnDevice& here, const UpdatePass& pass, const AdamRule& rule, void* m, void* v,
                 long t);
void accum_adam_update(const OnDevice& here, const UpdatePass& pass, const AdamRule& rule, void* m, void* v,
                       void* sum, long t, long s, bool fold);

/// For float32 and float64. With `weight`: out += weight * decoded; without (null): out <- decoded.
void encode(const OnDevice& here, const DeviceCode& code, DType dtype, const void* in, std::size_t count,
            std::uint64_t draws, void* message);
void decode(const OnDevice& here, const DeviceCode& code, const void* message, const double* weight,
            DType dtype, void* out, std::size_t count);
/// The same for codecs that send few of the elements.
void encode_sparse(const OnDevice& here, const DeviceCode& code, DType dtype, const void* in,
                   std::size_t count, std::uint64_t draws, void* message);
void decode_sparse(const OnDevice& here, const DeviceCode& code, const void* message, const double* weight,
                   DType dtype, void* out, std::size_t count);

void encode_int8(const OnDevice& here, const Int8Part& part, const void* in, std::size_t count,
                 void* message);
void decode_int8(const OnDevice& here, const Int8Part& part, const void* message, void* out,
                 std::size_t count);
/// The first term is this rank's own message; `x` may be null.
void combine_around_int8(const OnDevice& here, const Int8Part& part, void* out, const void* x,
                         std::span<const Term> terms, std::size_t count);

/// For float32 and float64; see kernel/matrices.h.
void multiply(const OnDevice& here, DType dtype, void* p, const void* m, const void* q,
              const FactorShape& shape);
void multiply_transposed(const OnDevice& here, DType dtype, void* q, const void* m, const void* p,
                         const FactorShape& shape);
void multiply_factors(const OnDevice& here, DType dtype, void* m, const void* p, const void* q,
                      const FactorShape& shape);
void orthonormalize(const OnDevice& here, DType dtype, void* factor, std::size_t rows, std::size_t rank);

// The parts of load_kernels(), one per file.
void load_plan_kernels();
void load_sum_kernels();
void load_map_kernels();
void load_update_kernels();
void load_message_update_kernels();
void load_measure_kernels();
void load_code_kernels();
void load_sparse_kernels();
void load_int8_kernels();
void load_matrix_kernels();

}  // namespace starling::kernel::cuda
