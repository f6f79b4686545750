#include "starling/kernel/cuda/elements.cuh"
#include "starling/kernel/cuda/folds.cuh"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/tables.cuh"

namespace starling::kernel::cuda {
namespace {

static_assert(kMostSquareChunks == Scratch::kPartialSums && kMostSquareChunks == 4 * kBlock);

template <typename T>
__device__ __forceinline__ void add_squares(double (&sums)[4], const T (&x)[4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const auto number = static_cast<double>(number_of(x[k]));
    sums[k] += number * number;
  }
}

// One block per chunk; several threads per strip, each with four columns.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlock)
    squares_kernel(const T* data, std::size_t count, std::size_t strip, double* partial) {
  __shared__ BlockSums sums;
  each_thread([&] {
    constexpr unsigned kThreads = kSquareColumns / 4;
    const std::size_t begin = (blockIdx.x * kSquareStrips + threadIdx.x / kThreads) * strip;
    const std::size_t end = begin + strip < count ? begin + strip : count;
    double own[4] = {};
    std::size_t i = begin + 4 * (threadIdx.x % kThreads);
#pragma unroll 8
    for (; i + 4 <= end; i += kSquareColumns) {
      T x[4];
      if constexpr (kAligned) {
        using Word = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
        constexpr int kWords = static_cast<int>(4 * sizeof(T) / sizeof(Word));
        Word words[kWords];
#pragma unroll
        for (int w = 0; w < kWords; ++w) words[w] = __ldcs(reinterpret_cast<const Word*>(data + i) + w);
        memcpy(x, words, sizeof x);
      } else {
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) x[k] = data[i + k];
      }
      add_squares(own, x);
    }
    T rest[4] = {};
#pragma unroll
    for (unsigned k = 0; k < 4; ++k)
      if (i + k < end) rest[k] = data[i + k];
    add_squares(own, rest);
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k][threadIdx.x] = own[k];
  });
  const double sum = fold_block(sums);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kBlock) total_kernel(const double* partial, unsigned n, double* total) {
  __shared__ BlockSums sums;
  each_thread([&] {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned i = 4 * threadIdx.x + k;
      sums[k][threadIdx.x] = i < n ? partial[i] : 0.0;
    }
  });
  const double sum = fold_block(sums);
  if (threadIdx.x == 0) *total = sum;
}

// total <- total + factor * factor * sum.
__global__ void add_total_kernel(const double* sum, double factor, double* total) {
  *total += *sum * factor * factor;
}

// Infinities and NaNs have an exponent of all ones.
template <typename Bits, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    nonfinite_kernel(const Bits* data, Bits exponent, std::size_t count, int shift, int* found) {
  each_lane<kAccess, kLanesOf<Bits>>(count, shift, [&](const auto& lanes) {
    Bits x[std::decay_t<decltype(lanes)>::kLanes];
    lanes.load(data, x);
    bool odd = false;
#pragma unroll
    for (const Bits one : x) odd = odd || (one & exponent) == exponent;
    if (odd) *found = 1;
  });
}

template <typename Bits>
const auto& nonfinite_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &nonfinite_kernel<Bits, access()>; });
  return kTable;
}

// The value of a number on the device, after all work so far has ended.
template <typename T>
T read(const OnDevice& here, const T* number) {
  T result{};
  check(cudaMemcpyAsync(&result, number, sizeof result, cudaMemcpyDeviceToHost, here.stream()),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(here.stream()), "cudaStreamSynchronize");
  return result;
}

// Leaves the sum of squares in the stream's scratch memory.
template <typename T>
void sum_squares(const OnDevice& here, const void* data, std::size_t count) {
  Scratch* scratch = here.scratch();
  const std::size_t strip = square_strip(count);
  const std::size_t chunk = kSquareStrips * strip;
  const auto chunks = static_cast<unsigned>((count + chunk - 1) / chunk);
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % sizeof(uint4) == 0;
  here.launch(aligned ? &squares_kernel<T, true> : &squares_kernel<T, false>, chunks,
              static_cast<const T*>(data), count, strip, &scratch->partial[0]);
  here.launch(total_kernel, 1U, static_cast<const double*>(scratch->partial), chunks, &scratch->sum);
}

template <typename Bits>
bool exponents_below(const OnDevice& here, const void* data, std::size_t count, Bits exponent) {
  int* found = &here.scratch()->nonfinite;
  check(cudaMemsetAsync(found, 0, sizeof *found, here.stream()), "cudaMemsetAsync");
  const Shape shape = ShapeFinder(count, kLanesOf<Bits>).add(data, sizeof(Bits)).shape();
  here.launch(nonfinite_kernels<Bits>()[shape.index()], shape.blocks, static_cast<const Bits*>(data),
              exponent, count, shape.shift, found);
  return read(here, found) == 0;
}

}  // namespace

double sum_of_squares(const OnDevice& here, DType dtype, const void* data, std::size_t count) {
  dtype == DType::float64 ? sum_squares<double>(here, data, count) : sum_squares<float>(here, data, count);
  return read(here, &here.scratch()->sum);
}

void add_squares(const OnDevice& here, DType dtype, const void* data, std::size_t count, double factor,
                 double* total) {
  as_floating(dtype, [&]<typename E>(std::type_identity<E>) { sum_squares<E>(here, data, count); });
  here.launch_one(add_total_kernel, static_cast<const double*>(&here.scratch()->sum), factor, total);
}

bool all_finite(const OnDevice& here, DType dtype, const void* data, std::size_t count) {
  switch (dtype) {
    case DType::float64:
      return exponents_below<std::uint64_t>(here, data, count, 0x7ff0'0000'0000'0000);
    case DType::float32:
      return exponents_below<std::uint32_t>(here, data, count, 0x7f80'0000);
    case DType::float16:
      return exponents_below<std::uint16_t>(here, data, count, 0x7c00);
    case DType::bfloat16:
      return exponents_below<std::uint16_t>(here, data, count, 0x7f80);
    default:
      return true;
  }
}

void load_measure_kernels() {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16})
    as_floating(dtype, []<typename E>(std::type_identity<E>) {
      load(squares_kernel<E, false>);
      load(squares_kernel<E, true>);
    });
  load(total_kernel);
  load(add_total_kernel);
  load(nonfinite_kernels<std::uint16_t>());
  load(nonfinite_kernels<std::uint32_t>());
  load(nonfinite_kernels<std::uint64_t>());
}

}  // namespace starling::kernel::cuda
