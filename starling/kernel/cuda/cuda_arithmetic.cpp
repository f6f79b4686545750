#include "starling/kernel/cuda/cuda_arithmetic.h"

#include <algorithm>
#include <vector>

#include "starling/kernel/cuda/arguments.h"
#include "starling/kernel/cuda/device_memory.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/matrices.h"

namespace starling::kernel::cuda {
namespace {

void check_floating(DType dtype, const char* operation) {
  if (!is_floating(dtype))
    throw InvalidArgument(std::string(operation) +
                          ": needs a floating dtype (float64, float32, float16, bfloat16), not " +
                          name(dtype));
}

void check_on_device(const UpdatePass& pass, const char* operation) {
  check_pass(pass, operation);
  on_device(pass.gradient);
  on_device(pass.x);
  on_device(pass.copy);
  on_device(pass.rounded);
}

}  // namespace

std::shared_ptr<void> CudaArithmetic::allocate(std::size_t bytes) const {
  return cuda::allocate(bytes);
}

void CudaArithmetic::zero(Buffer out) const {
  void* to = on_device(out);
  if (out.count == 0) return;
  const OnDevice here;
  check(cudaMemsetAsync(to, 0, out.bytes(), here.stream()), "cudaMemsetAsync");
}

void CudaArithmetic::copy(Buffer out, ConstBuffer in) const {
  void* to = on_device(out);
  const void* from = on_device(in);
  if (out.count == 0) return;
  const OnDevice here;
  if (in.dtype != out.dtype)
    cuda::convert(here, in.dtype, from, out.dtype, to, out.count);
  else if (from != to)
    check(cudaMemcpyAsync(to, from, out.bytes(), cudaMemcpyDeviceToDevice, here.stream()), "cudaMemcpyAsync");
}

void CudaArithmetic::copy_strided(Buffer out, std::size_t out_step, ConstBuffer in,
                                  std::size_t in_step) const {
  void* to = on_device(out);
  const void* from = on_device(in);
  if (in.count > 0)
    cuda::copy_strided(OnDevice(), size_of(in.dtype), to, out_step, from, in_step,
                       (in.count + in_step - 1) / in_step);
}

void CudaArithmetic::gather(Buffer out, std::span<const GatheredPart> parts) const {
  void* to = on_device(out);
  if (!parts.empty()) cuda::gather(OnDevice(), size_of(out.dtype), to, parts);
}

void CudaArithmetic::swap(Buffer a, Buffer b) const {  // NOLINT(bugprone-exception-escape)
  void* one = on_device(a);
  void* other = on_device(b);
  if (a.count > 0) cuda::swap(OnDevice(), one, other, a.bytes());
}

void CudaArithmetic::combine(Buffer out, std::span<const Term> terms) const {
  check_floating(out.dtype, "combine");
  void* to = on_device(out);
  if (terms.empty()) return zero(out);
  if (out.count > 0) cuda::combine(OnDevice(), out.dtype, to, terms, out.count);
}

void CudaArithmetic::combine_around(DType message, Buffer out, ConstBuffer x, Term own,
                                    std::span<const Term> others) const {
  check_floating(message, "combine_around");
  void* to = on_device(out);
  const void* from = on_device(x);
  if (out.count == 0) return;
  std::vector<Term> terms = {own};
  terms.insert(terms.end(), others.begin(), others.end());
  cuda::combine_around(OnDevice(), message, to, from, terms, out.count);
}

void CudaArithmetic::reduce(Reduction reduction, Buffer accumulator, ConstBuffer in) const {
  if (reduction < Reduction::sum || reduction > Reduction::average)
    throw InvalidArgument("reduce: unknown reduction " + std::to_string(static_cast<int>(reduction)) +
                          "; valid are sum, min, max, average");
  void* to = on_device(accumulator);
  const void* from = on_device(in);
  if (accumulator.count > 0)
    cuda::reduce(OnDevice(), reduction, accumulator.dtype, to, from, accumulator.count);
}

void CudaArithmetic::scale(Buffer x, double factor) const {
  check_floating(x.dtype, "scale");
  const Term term{ConstBuffer(x), factor};
  combine(x, {&term, 1});
}

void CudaArithmetic::divide(Buffer x, double number) const {
  check_floating(x.dtype, "divide");
  void* data = on_device(x);
  if (x.count > 0) cuda::divide(OnDevice(), x.dtype, data, number, x.count);
}

double CudaArithmetic::sum_of_squares(ConstBuffer x) const {
  check_parameters(x.dtype, "sum of squares");
  const void* data = on_device(x);
  return x.count == 0 ? 0 : cuda::sum_of_squares(OnDevice(), x.dtype, data, x.count);
}

void CudaArithmetic::add_squares(Buffer sum, ConstBuffer x, double factor) const {
  check_floating(x.dtype, "sum of squares");
  auto* total = static_cast<double*>(on_device(sum));
  const void* data = on_device(x);
  if (x.count > 0) cuda::add_squares(OnDevice(), x.dtype, data, x.count, factor, total);
}

void CudaArithmetic::clip(Buffer x, double factor, ConstBuffer squares, double limit) const {
  check_floating(x.dtype, "clip");
  void* data = on_device(x);
  const auto* total = static_cast<const double*>(on_device(squares));
  if (x.count > 0) cuda::clip(OnDevice(), x.dtype, data, factor, total, limit, x.count);
}

void CudaArithmetic::divide_by(Buffer out, ConstBuffer in, ConstBuffer number) const {
  check_floating(out.dtype, "divide_by");
  void* to = on_device(out);
  const void* from = on_device(in);
  const auto* divisor = static_cast<const double*>(on_device(number));
  if (out.count > 0) cuda::divide_by(OnDevice(), out.dtype, to, from, divisor, out.count);
}

bool CudaArithmetic::all_finite(ConstBuffer x) const {
  const void* data = on_device(x);
  return x.count == 0 || !is_floating(x.dtype) || cuda::all_finite(OnDevice(), x.dtype, data, x.count);
}

void CudaArithmetic::moments(const MomentRule& rule, ConstBuffer x, ConstBuffer gradient, Buffer m,
                             Buffer v) const {
  check_parameters(m.dtype, "moments");
  const void* at = on_device(x);
  const void* g = on_device(gradient);
  void* first = on_device(m);
  void* second = on_device(v);
  if (m.count > 0) cuda::moments(OnDevice(), m.dtype, rule, at, g, first, second, m.count);
}

void CudaArithmetic::moment_step(const MomentStepRule& rule, Buffer x, ConstBuffer m, ConstBuffer v) const {
  check_parameters(x.dtype, "moment_step");
  void* at = on_device(x);
  const void* first = on_device(m);
  const void* second = on_device(v);
  if (x.count > 0) cuda::moment_step(OnDevice(), x.dtype, rule, at, first, second, x.count);
}

void CudaArithmetic::sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first) const {
  check_on_device(pass, "sgd");
  void* kept = on_device(m);
  if (pass.x.count > 0) cuda::sgd_update(OnDevice(), pass, rule, kept, first);
}

void CudaArithmetic::adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v,
                                 long t) const {
  check_on_device(pass, "adam");
  void* first = on_device(m);
  void* second = on_device(v);
  if (pass.x.count > 0) cuda::adam_update(OnDevice(), pass, rule, first, second, t);
}

void CudaArithmetic::accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v,
                                       Buffer sum, long t, long s, bool fold) const {
  check_on_device(pass, "accum-adam");
  void* first = on_device(m);
  void* second = on_device(v);
  void* gathered = on_device(sum);
  if (pass.x.count > 0) cuda::accum_adam_update(OnDevice(), pass, rule, first, second, gathered, t, s, fold);
}

void CudaArithmetic::multiply(Buffer p, ConstBuffer m, ConstBuffer q, std::size_t rank) const {
  const FactorShape shape = factor_shape("multiply", m, p, q, rank);
  void* to = on_device(p);
  const void* matrix = on_device(m);
  const void* factor = on_device(q);
  if (p.count > 0) cuda::multiply(OnDevice(), p.dtype, to, matrix, factor, shape);
}

void CudaArithmetic::multiply_transposed(Buffer q, ConstBuffer m, ConstBuffer p, std::size_t rank) const {
  const FactorShape shape = factor_shape("multiply_transposed", m, p, q, rank);
  void* to = on_device(q);
  const void* matrix = on_device(m);
  const void* factor = on_device(p);
  if (q.count > 0) cuda::multiply_transposed(OnDevice(), q.dtype, to, matrix, factor, shape);
}

void CudaArithmetic::multiply_factors(Buffer m, ConstBuffer p, ConstBuffer q, std::size_t rank) const {
  const FactorShape shape = factor_shape("multiply_factors", m, p, q, rank);
  void* to = on_device(m);
  const void* one = on_device(p);
  const void* other = on_device(q);
  if (m.count > 0) cuda::multiply_factors(OnDevice(), m.dtype, to, one, other, shape);
}

void CudaArithmetic::orthonormalize(Buffer factor, std::size_t rank) const {
  check_factor("orthonormalize", factor, rank);
  void* data = on_device(factor);
  if (factor.count > 0) cuda::orthonormalize(OnDevice(), factor.dtype, data, factor.count / rank, rank);
}

std::shared_ptr<bool> CudaArithmetic::make_mark() const {
  return cuda::make_mark();
}

}  // namespace starling::kernel::cuda
