#pragma once

#include "starling/kernel/codec_kernels.h"

namespace starling::kernel::cuda {

/// Codecs in CUDA memory, by kernels on the calling thread's stream.
class CudaCodecKernels final : public CodecKernels {
 public:
  void encode(const DeviceCode& code, ConstBuffer in, std::uint64_t draws, Buffer message) const override;
  void decode(const DeviceCode& code, ConstBuffer message, Buffer out) const override;
  void decode_add(const DeviceCode& code, ConstBuffer message, double weight, Buffer out) const override;
  void encode_int8(const Int8Part& part, ConstBuffer in, Buffer message) const override;
  void decode_int8(const Int8Part& part, ConstBuffer message, Buffer out) const override;
  void combine_around_int8(const Int8Part& part, Buffer out, ConstBuffer x, Term own,
                           std::span<const Term> others) const override;
};

}  // namespace starling::kernel::cuda
