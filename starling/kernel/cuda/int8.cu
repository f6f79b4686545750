#include "starling/kernel/cuda/folds.cuh"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/runs.cuh"
#include "starling/kernel/cuda/tables.cuh"

// int8 messages (kernel/int8_messages.h). One thread block per run; codes are those of a part of the block.

namespace starling::kernel::cuda {
namespace {

__global__ void __launch_bounds__(kBlock)
    encode_int8_kernel(const __grid_constant__ Runs runs, const float* in, std::size_t end,
                       std::size_t padded, Int8Grid* grids, std::int8_t* codes) {
  const Run run(runs, blockIdx.x);
  const rules::Int8Scale scale = rules::int8_scale(block_range(in + run.begin, run.count));
  each_thread([&] {
    if (threadIdx.x == 0) {
      grids[run.number] = scale.grid;
      if (run.begin + run.count == end)
        for (std::size_t i = end; i < padded; ++i) codes[i] = 0;
    }
    for (std::size_t i = run.begin + threadIdx.x; i < run.begin + run.count; i += kBlock)
      codes[i] = rules::int8_code(scale, in[i]);
  });
}

__global__ void __launch_bounds__(kBlock)
    decode_int8_kernel(const __grid_constant__ Runs runs, const Int8Grid* grids, const std::int8_t* codes,
                       float* out) {
  const Run run(runs, blockIdx.x);
  const Int8Grid grid = grids[run.number];
  for (std::size_t i = run.begin + threadIdx.x; i < run.begin + run.count; i += kBlock)
    out[i] = rules::int8_value(grid, codes[i]);
}

// The first term is this rank's own message.
__global__ void __launch_bounds__(kBlock)
    around_int8_kernel(const __grid_constant__ Runs runs, const __grid_constant__ SumArgument<float> sum,
                       const float* x, float* out, std::size_t codes_at) {
  const Run run(runs, blockIdx.x);
  const int n = sum.count();
  const auto value = [&](int term, std::size_t i) {
    const auto* message = sum.data<std::int8_t>(term);
    const Int8Grid grid = reinterpret_cast<const Int8Grid*>(message)[run.number];
    return rules::int8_value(grid, message[codes_at + i]);
  };
  for (std::size_t i = run.begin + threadIdx.x; i < run.begin + run.count; i += kBlock) {
    RunningSum<float> pull(SumForm::average, 0, value(0, i));
    for (int t = 1; t < n; ++t) pull.add(sum.weight(t), value(t, i));
    const float before = x != nullptr ? x[i] : 0.0F;
    // Subtracted, so that x without differences keeps even the sign of zero.
    out[i] = before - (n == 1 ? 0.0F : pull.so_far());
  }
}

}  // namespace

void encode_int8(const OnDevice& here, const Int8Part& part, const void* in, std::size_t count,
                 void* message) {
  const PartCodes codes(part);
  for_runs(part, count, [&](const Runs& runs, unsigned blocks) {
    here.launch(encode_int8_kernel, blocks, runs, static_cast<const float*>(in), codes.end, codes.padded,
                static_cast<Int8Grid*>(message), static_cast<std::int8_t*>(message) + codes.offset);
  });
}

void decode_int8(const OnDevice& here, const Int8Part& part, const void* message, void* out,
                 std::size_t count) {
  const auto* codes = static_cast<const std::int8_t*>(message) + PartCodes(part).offset;
  for_runs(part, count, [&](const Runs& runs, unsigned blocks) {
    here.launch(decode_int8_kernel, blocks, runs, static_cast<const Int8Grid*>(message), codes,
                static_cast<float*>(out));
  });
}

void combine_around_int8(const OnDevice& here, const Int8Part& part, void* out, const void* x,
                         std::span<const Term> terms, std::size_t count) {
  const SumArgument<float> sum = plan_on<float>(here, DType::float32, terms, true);
  for_runs(part, count, [&](const Runs& runs, unsigned blocks) {
    here.launch(around_int8_kernel, blocks, runs, sum, static_cast<const float*>(x), static_cast<float*>(out),
                PartCodes(part).offset);
  });
}

void load_int8_kernels() {
  load(encode_int8_kernel);
  load(decode_int8_kernel);
  load(around_int8_kernel);
}

}  // namespace starling::kernel::cuda
