#include <memory>

#include "starling/base/permutation.h"
#include "starling/kernel/code_rules.h"
#include "starling/kernel/cuda/device_memory.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/elements.cuh"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/phases.cuh"
#include "starling/kernel/cuda/tables.cuh"

// Codecs that send few of the elements. The k largest are found as in kernel/select.cpp: 11 leading bits of
// |x| are counted, then ten and ten more bits of the elements that are left. Of elements that equal the last
// one, those with the lowest indices are taken.

namespace starling::kernel::cuda {
namespace {

using Kind = DeviceCode::Kind;

inline constexpr unsigned kBins = 2048;
inline constexpr unsigned kTile = 16 * kBlock;  // elements per block

/// The state of a selection.
struct Selection {
  unsigned bins[kBins];
  std::uint32_t prefix;  // the bits that have been determined
  std::size_t k;         // the last element is the k-th largest of those with this prefix
};

/// The bits of a magnitude that are counted in one pass.
struct Digit {
  unsigned below;  // the number of lower bits
  unsigned bins;
};
inline constexpr Digit kDigits[] = {{20, 2048}, {10, 1024}, {0, 1024}};

template <typename T>
__global__ void __launch_bounds__(kBlock)
    count_bins_kernel(const T* in, std::size_t count, Digit digit, Selection* selection) {
  __shared__ unsigned bins[kBins];
  each_thread([&] {
    for (unsigned b = threadIdx.x; b < digit.bins; b += kBlock) bins[b] = 0;
  });
  each_thread([&] {
    const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * kTile + threadIdx.x;
    const std::size_t end = begin + kTile - threadIdx.x;
    for (std::size_t i = begin; i < end && i < count; i += kBlock) {
      const std::uint32_t bits = rules::magnitude(rules::narrowed(in[i])) >> digit.below;
      const std::uint32_t prefix = digit.bins == kBins ? 0 : bits / digit.bins;
      if (prefix == selection->prefix) atomicAdd(&bins[bits % digit.bins], 1U);
    }
  });
  each_thread([&] {
    for (unsigned b = threadIdx.x; b < digit.bins; b += kBlock)
      if (bins[b] != 0) atomicAdd(&selection->bins[b], bins[b]);
  });
}

// Runs in one block. Finds the bin with the k-th largest element; k becomes its position within the bin.
__global__ void __launch_bounds__(kBlock) pick_bin_kernel(Digit digit, Selection* selection) {
  __shared__ std::size_t sums[kBlock];
  const unsigned of_thread = digit.bins / kBlock;
  each_thread([&] {
    std::size_t sum = 0;
    for (unsigned b = 0; b < of_thread; ++b) sum += selection->bins[threadIdx.x * of_thread + b];
    sums[threadIdx.x] = sum;
  });
  each_thread([&] {
    if (threadIdx.x != 0) return;
    std::size_t k = selection->k;
    unsigned group = kBlock - 1;
    for (; k > sums[group]; --group) k -= sums[group];
    unsigned bin = group * of_thread + of_thread - 1;
    for (; k > selection->bins[bin]; --bin) k -= selection->bins[bin];
    selection->k = k;
    selection->prefix = selection->prefix * digit.bins + bin;
  });
  each_thread([&] {
    for (unsigned b = threadIdx.x; b < digit.bins; b += kBlock) selection->bins[b] = 0;
  });
}

/// The numbers of elements above the last magnitude and equal to it.
struct Counts {
  unsigned above;
  unsigned equal;
  __device__ __forceinline__ Counts operator+(Counts other) const {
    return {above + other.above, equal + other.equal};
  }
};

// Counts n elements.
template <typename T>
__device__ __forceinline__ Counts counts_of(const T* in, unsigned n, std::uint32_t least) {
  Counts counts{0, 0};
  for (unsigned i = 0; i < n; ++i) {
    const std::uint32_t bits = rules::magnitude(rules::narrowed(in[i]));
    counts.above += bits > least ? 1 : 0;
    counts.equal += bits == least ? 1 : 0;
  }
  return counts;
}

/// Replaces each thread's counts by the sum over the threads before it, and returns the total.
__device__ __forceinline__ Counts scan_block(Counts (&counts)[kBlock]) {
  __shared__ Counts before[kBlock];
  __shared__ Counts total;
  each_thread([&] {
    // Few threads sum up rows.
    constexpr unsigned kRow = 16;
    if (threadIdx.x >= kBlock / kRow) return;
    Counts sum{0, 0};
    for (unsigned t = threadIdx.x * kRow; t < (threadIdx.x + 1) * kRow; ++t) {
      before[t] = sum;
      sum = sum + counts[t];
    }
    counts[threadIdx.x * kRow] = sum;  // its old value is not needed any more
  });
  each_thread([&] {
    constexpr unsigned kRow = 16;
    if (threadIdx.x != 0) return;
    Counts sum{0, 0};
    for (unsigned t = 0; t < kBlock; t += kRow) {
      const Counts row = counts[t];
      counts[t] = sum;
      sum = sum + row;
    }
    total = sum;
  });
  each_thread([&] {
    constexpr unsigned kRow = 16;
    before[threadIdx.x] = before[threadIdx.x] + counts[threadIdx.x / kRow * kRow];
  });
  each_thread([&] { counts[threadIdx.x] = before[threadIdx.x]; });
  return total;
}

/// The elements per thread, which are contiguous, so that threads are in the order of elements.
inline constexpr unsigned kOfThread = kTile / kBlock;

template <typename T>
struct Part {
  __device__ __forceinline__ Part(const T* all, std::size_t count)
      : first(static_cast<std::size_t>(blockIdx.x) * kTile + threadIdx.x * kOfThread),
        in(all + first),
        n(first >= count               ? 0
          : first + kOfThread <= count ? kOfThread
                                       : static_cast<unsigned>(count - first)) {}
  std::size_t first;
  const T* in;
  unsigned n;
};

template <typename T>
__global__ void __launch_bounds__(kBlock)
    count_tiles_kernel(const T* in, std::size_t count, const Selection* selection, Counts* tiles) {
  __shared__ Counts counts[kBlock];
  each_thread([&] {
    const Part<T> part(in, count);
    counts[threadIdx.x] = counts_of(part.in, part.n, selection->prefix);
  });
  const Counts total = scan_block(counts);
  if (threadIdx.x == 0) tiles[blockIdx.x] = total;
}

// Runs in one block: for each tile, sums up the counts of the tiles before it.
__global__ void __launch_bounds__(kBlock) scan_tiles_kernel(Counts* tiles, unsigned number) {
  __shared__ Counts counts[kBlock];
  const unsigned of_thread = (number + kBlock - 1) / kBlock;
  const auto range = [&] {
    const unsigned begin = threadIdx.x * of_thread;
    return uint2{begin < number ? begin : number, begin + of_thread < number ? begin + of_thread : number};
  };
  each_thread([&] {
    Counts sum{0, 0};
    for (uint2 t = range(); t.x < t.y; ++t.x) sum = sum + tiles[t.x];
    counts[threadIdx.x] = sum;
  });
  scan_block(counts);
  each_thread([&] {
    Counts sum = counts[threadIdx.x];
    for (uint2 t = range(); t.x < t.y; ++t.x) {
      const Counts tile = tiles[t.x];
      tiles[t.x] = sum;
      sum = sum + tile;
    }
  });
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    take_largest_kernel(const T* in, std::size_t count, const Selection* selection, const Counts* tiles,
                        std::uint32_t* indices, float* values) {
  __shared__ Counts counts[kBlock];
  const std::uint32_t least = selection->prefix;
  const std::size_t ties = selection->k;
  each_thread([&] {
    const Part<T> part(in, count);
    counts[threadIdx.x] = counts_of(part.in, part.n, least);
  });
  scan_block(counts);
  each_thread([&] {
    const Part<T> part(in, count);
    Counts before = tiles[blockIdx.x] + counts[threadIdx.x];
    for (unsigned i = 0; i < part.n; ++i) {
      const auto x = rules::narrowed(part.in[i]);
      const std::uint32_t bits = rules::magnitude(x);
      if (bits < least) continue;
      const bool is_tie = bits == least;
      if (!is_tie || before.equal < ties) {
        const std::size_t at = before.above + (before.equal < ties ? before.equal : ties);
        indices[at] = static_cast<std::uint32_t>(part.first + i);
        values[at] = x;
      }
      before = before + Counts{is_tie ? 0U : 1U, is_tie ? 1U : 0U};
    }
  });
}

__global__ void begin_selection_kernel(Selection* selection, std::size_t k) {
  selection->k = k;
}

template <typename T>
void take_largest(const OnDevice& here, const T* in, std::size_t count, std::size_t k, void* message) {
  const unsigned tiles = blocks_for(count, kTile);
  const std::shared_ptr<void> memory = allocate(sizeof(Selection) + tiles * sizeof(Counts));  // zeroed
  auto* selection = static_cast<Selection*>(memory.get());
  auto* counts = reinterpret_cast<Counts*>(selection + 1);
  here.launch_one(begin_selection_kernel, selection, k);
  for (const Digit digit : kDigits) {
    here.launch(count_bins_kernel<T>, tiles, in, count, digit, selection);
    here.launch(pick_bin_kernel, 1U, digit, selection);
  }
  const Selection* found = selection;
  here.launch(count_tiles_kernel<T>, tiles, in, count, found, counts);
  here.launch(scan_tiles_kernel, 1U, counts, tiles);
  auto* indices = static_cast<std::uint32_t*>(message);
  here.launch(take_largest_kernel<T>, tiles, in, count, found, static_cast<const Counts*>(counts), indices,
              reinterpret_cast<float*>(indices + k));
}

/// A random-k message: the key of its draws, then the values, padded to a multiple of 8 bytes.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    take_random_kernel(const T* in, Permutation permutation, std::uint64_t draws, std::size_t k, float factor,
                       std::uint64_t* message) {
  const std::size_t j = static_cast<std::size_t>(blockIdx.x) * kBlock + threadIdx.x;
  auto* values = reinterpret_cast<float*>(message + 1);
  if (j == 0) *message = draws;
  if (j == k && k % 2 == 1) values[k] = 0;
  if (j >= k) return;
  permutation.redraw(draws, 0);
  values[j] = rules::scaled_value(factor, rules::narrowed(in[permutation(static_cast<Rank>(j))]));
}

// Decodes a codec whose indices are listed in the message, or drawn from its key.
struct Listed {
  const std::uint32_t* indices;
  __device__ __forceinline__ std::size_t operator()(std::size_t j) const { return indices[j]; }
};
struct Drawn {
  Permutation permutation;
  const std::uint64_t* draws;
  __device__ __forceinline__ std::size_t operator()(std::size_t j) const {
    Permutation drawn = permutation;
    drawn.redraw(*draws, 0);
    return static_cast<std::size_t>(drawn(static_cast<Rank>(j)));
  }
};

template <typename T, bool kAdds, typename Index>
__global__ void __launch_bounds__(kBlock)
    scatter_kernel(const __grid_constant__ Index index, const float* values, std::size_t k, T weight, T* out,
                   std::size_t count) {
  const std::size_t j = static_cast<std::size_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (j >= k) return;
  const std::size_t i = index(j);
  if (i >= count) return;
  const auto value = static_cast<T>(values[j]);
  if constexpr (kAdds)
    out[i] = out[i] + weight * value;
  else
    out[i] = value;
}

template <typename T, typename Index>
void scatter(const OnDevice& here, const Index& index, const float* values, std::size_t k,
             const double* weight, T* out, std::size_t count) {
  const unsigned blocks = blocks_for(k, kBlock);
  if (weight != nullptr)
    return here.launch(scatter_kernel<T, true, Index>, blocks, index, values, k, static_cast<T>(*weight), out,
                       count);
  check(cudaMemsetAsync(out, 0, count * sizeof(T), here.stream()), "cudaMemsetAsync");
  here.launch(scatter_kernel<T, false, Index>, blocks, index, values, k, T(0), out, count);
}

Permutation permutation_of(std::size_t count) {
  return {static_cast<Rank>(count), 0, 0};
}

template <typename T, typename Index>
void load_scatter() {
  load(scatter_kernel<T, true, Index>);
  load(scatter_kernel<T, false, Index>);
}

}  // namespace

void encode_sparse(const OnDevice& here, const DeviceCode& code, DType dtype, const void* in,
                   std::size_t count, std::uint64_t draws, void* message) {
  as_parameters(dtype, [&]<typename T>(T) {
    if (code.kind == Kind::top_k)
      return take_largest(here, static_cast<const T*>(in), count, code.kept, message);
    here.launch(take_random_kernel<T>, blocks_for(code.kept + 1, kBlock), static_cast<const T*>(in),
                permutation_of(count), draws, code.kept, code.factor, static_cast<std::uint64_t*>(message));
  });
}

void decode_sparse(const OnDevice& here, const DeviceCode& code, const void* message, const double* weight,
                   DType dtype, void* out, std::size_t count) {
  as_parameters(dtype, [&]<typename T>(T) {
    T* to = static_cast<T*>(out);
    if (code.kind == Kind::top_k) {
      const auto* indices = static_cast<const std::uint32_t*>(message);
      const auto* values = reinterpret_cast<const float*>(indices + code.kept);
      scatter(here, Listed{indices}, values, code.kept, weight, to, count);
    } else {
      const auto* draws = static_cast<const std::uint64_t*>(message);
      const auto* values = reinterpret_cast<const float*>(draws + 1);
      scatter(here, Drawn{permutation_of(count), draws}, values, code.kept, weight, to, count);
    }
  });
}

void load_sparse_kernels() {
  load(begin_selection_kernel);
  load(pick_bin_kernel);
  load(scan_tiles_kernel);
  for (const DType dtype : {DType::float64, DType::float32})
    as_parameters(dtype, []<typename T>(T) {
      load(count_bins_kernel<T>);
      load(count_tiles_kernel<T>);
      load(take_largest_kernel<T>);
      load(take_random_kernel<T>);
      load_scatter<T, Listed>();
      load_scatter<T, Drawn>();
    });
}

}  // namespace starling::kernel::cuda
