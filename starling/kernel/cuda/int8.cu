#include "starling/kernel/cuda/folds.cuh"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/tables.cuh"

// int8 messages (codec/wire_format.h): the grids of all runs, then one byte per element, padded to a multiple
// of 8 bytes. One thread block per run.

namespace starling::kernel::cuda {
namespace {

/// The runs of several parameters, as a kernel argument.
struct Runs {
  static constexpr int kMost = 96;
  int parameters;
  unsigned first;                // of these runs, among those of all parameters
  unsigned first_of[kMost + 1];  // of each parameter, counted from `first`, and the end
  std::size_t begin[kMost + 1];  // of each parameter, and the end
};

/// The run that the calling thread block works on: `count` elements from element `begin` on.
struct Run {
  __device__ __forceinline__ explicit Run(const Runs& runs) : number(runs.first + blockIdx.x) {
    int low = 0, high = runs.parameters;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (runs.first_of[middle] <= blockIdx.x ? low : high) = middle;
    }
    begin = runs.begin[low] + (blockIdx.x - runs.first_of[low]) * kInt8Run;
    const std::size_t end = runs.begin[low + 1];
    count = begin + kInt8Run < end ? kInt8Run : end - begin;
  }

  unsigned number;
  std::size_t begin;
  std::size_t count;
};

__global__ void __launch_bounds__(kBlock)
    encode_int8_kernel(const __grid_constant__ Runs runs, const float* in, std::size_t count, Int8Grid* grids,
                       std::int8_t* codes) {
  const Run run(runs);
  const rules::Int8Scale scale = rules::int8_scale(block_range(in + run.begin, run.count));
  each_thread([&] {
    if (threadIdx.x == 0) {
      grids[run.number] = scale.grid;
      if (run.begin + run.count == count)
        for (std::size_t i = count; i % 8 != 0; ++i) codes[i] = 0;
    }
    for (std::size_t i = run.begin + threadIdx.x; i < run.begin + run.count; i += kBlock)
      codes[i] = rules::int8_code(scale, in[i]);
  });
}

__global__ void __launch_bounds__(kBlock)
    decode_int8_kernel(const __grid_constant__ Runs runs, const Int8Grid* grids, const std::int8_t* codes,
                       float* out) {
  const Run run(runs);
  const Int8Grid grid = grids[run.number];
  for (std::size_t i = run.begin + threadIdx.x; i < run.begin + run.count; i += kBlock)
    out[i] = rules::int8_value(grid, codes[i]);
}

// The first term is this rank's own message.
__global__ void __launch_bounds__(kBlock)
    around_int8_kernel(const __grid_constant__ Runs runs, const __grid_constant__ SumArgument<float> sum,
                       const float* x, float* out, std::size_t codes_at) {
  const Run run(runs);
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

constexpr unsigned runs_of(std::size_t count) {
  return static_cast<unsigned>((count + kInt8Run - 1) / kInt8Run);
}

/// Calls body(runs, blocks) for several parameters at a time.
template <typename Body>
void for_runs(std::span<const std::size_t> ends, const Body& body) {
  Runs runs{};
  unsigned blocks = 0;
  std::size_t begin = 0;
  const auto flush = [&] {
    if (blocks > 0) body(runs, blocks);
    runs.first += blocks;
    runs.parameters = 0;
    blocks = 0;
  };
  for (const std::size_t end : ends) {
    if (end == begin) continue;
    if (runs.parameters == Runs::kMost) flush();
    runs.first_of[runs.parameters] = blocks;
    runs.begin[runs.parameters++] = begin;
    blocks += runs_of(end - begin);
    runs.first_of[runs.parameters] = blocks;
    runs.begin[runs.parameters] = begin = end;
  }
  flush();
}

// The offset of the codes in a message.
std::size_t codes_in(std::span<const std::size_t> ends) {
  std::size_t runs = 0, begin = 0;
  for (const std::size_t end : ends) {
    runs += runs_of(end - begin);
    begin = end;
  }
  return runs * sizeof(Int8Grid);
}

}  // namespace

void encode_int8(const OnDevice& here, std::span<const std::size_t> ends, const void* in, void* message) {
  auto* codes = static_cast<std::int8_t*>(message) + codes_in(ends);
  for_runs(ends, [&](const Runs& runs, unsigned blocks) {
    here.launch(encode_int8_kernel, blocks, runs, static_cast<const float*>(in), ends.back(),
                static_cast<Int8Grid*>(message), codes);
  });
}

void decode_int8(const OnDevice& here, std::span<const std::size_t> ends, const void* message, void* out) {
  const auto* codes = static_cast<const std::int8_t*>(message) + codes_in(ends);
  for_runs(ends, [&](const Runs& runs, unsigned blocks) {
    here.launch(decode_int8_kernel, blocks, runs, static_cast<const Int8Grid*>(message), codes,
                static_cast<float*>(out));
  });
}

void combine_around_int8(const OnDevice& here, std::span<const std::size_t> ends, void* out, const void* x,
                         std::span<const Term> terms) {
  const SumArgument<float> sum = plan_on<float>(here, DType::float32, terms, true);
  for_runs(ends, [&](const Runs& runs, unsigned blocks) {
    here.launch(around_int8_kernel, blocks, runs, sum, static_cast<const float*>(x), static_cast<float*>(out),
                codes_in(ends));
  });
}

void load_int8_kernels() {
  load(encode_int8_kernel);
  load(decode_int8_kernel);
  load(around_int8_kernel);
}

}  // namespace starling::kernel::cuda
