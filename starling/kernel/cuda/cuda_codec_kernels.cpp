#include "starling/kernel/cuda/cuda_codec_kernels.h"

#include <vector>

#include "starling/kernel/cuda/arguments.h"
#include "starling/kernel/cuda/kernels.h"

namespace starling::kernel::cuda {
namespace {

bool is_sparse(const DeviceCode& code) {
  return code.kind == DeviceCode::Kind::top_k || code.kind == DeviceCode::Kind::random_k;
}

void decode_with(const DeviceCode& code, ConstBuffer message, const double* weight, Buffer out) {
  const void* from = on_device(message);
  void* to = on_device(out);
  check_parameters(out.dtype, "decode");
  if (out.count > 0)
    (is_sparse(code) ? decode_sparse : cuda::decode)(OnDevice(), code, from, weight, out.dtype, to,
                                                     out.count);
}

}  // namespace

void CudaCodecKernels::encode(const DeviceCode& code, ConstBuffer in, std::uint64_t draws,
                              Buffer message) const {
  const void* from = on_device(in);
  void* to = on_device(message);
  check_parameters(in.dtype, "encode");
  if (in.count > 0)
    (is_sparse(code) ? encode_sparse : cuda::encode)(OnDevice(), code, in.dtype, from, in.count, draws, to);
}

void CudaCodecKernels::decode(const DeviceCode& code, ConstBuffer message, Buffer out) const {
  decode_with(code, message, nullptr, out);
}

void CudaCodecKernels::decode_add(const DeviceCode& code, ConstBuffer message, double weight,
                                  Buffer out) const {
  decode_with(code, message, &weight, out);
}

void CudaCodecKernels::encode_int8(const Int8Part& part, ConstBuffer in, Buffer message) const {
  const void* from = on_device(in);
  void* to = on_device(message);
  if (in.count > 0) cuda::encode_int8(OnDevice(), part, from, in.count, to);
}

void CudaCodecKernels::decode_int8(const Int8Part& part, ConstBuffer message, Buffer out) const {
  const void* from = on_device(message);
  void* to = on_device(out);
  if (out.count > 0) cuda::decode_int8(OnDevice(), part, from, to, out.count);
}

void CudaCodecKernels::combine_around_int8(const Int8Part& part, Buffer out, ConstBuffer x, Term own,
                                           std::span<const Term> others) const {
  void* to = on_device(out);
  const void* from = on_device(x);
  if (out.count == 0) return;
  std::vector<Term> terms = {own};
  terms.insert(terms.end(), others.begin(), others.end());
  cuda::combine_around_int8(OnDevice(), part, to, from, terms, out.count);
}

}  // namespace starling::kernel::cuda
