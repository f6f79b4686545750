#include "starling/kernel/cuda/device_memory.h"
#include "starling/kernel/cuda/folds.cuh"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/tables.cuh"
#include "starling/kernel/matrices.h"

// The products of kernel/matrices.h. A launch handles up to kMostTogether columns of the factors, `used` of
// them, so it reads M once for all of them.

namespace starling::kernel::cuda {
namespace {

constexpr unsigned kMostTogether = 8;

// P <- M Q. A thread has one of the sums of dot(), for several rows of M, which need the same elements of Q.
constexpr unsigned kSumsOfRow = kSums;
constexpr unsigned kRowsOfThread = 2;
constexpr unsigned kRowsOfBlock = kRowsOfThread * (kBlock / kSumsOfRow);

template <typename T, unsigned kTogether>
__global__ void __launch_bounds__(kBlock)
    multiply_kernel(const T* m, const T* q, T* p, std::size_t rows, std::size_t columns, unsigned used) {
  constexpr unsigned kResults = kRowsOfBlock * kTogether;
  __shared__ T sums[kResults][kSumsOfRow + 8];  // more than needed, so that threads use different banks
  __shared__ double eight[kResults][8];
  __shared__ double totals[kResults];
  const std::size_t first = std::size_t{blockIdx.x} * kRowsOfBlock;
  each_thread([&] {
    if (threadIdx.x < kResults) totals[threadIdx.x] = 0;
  });
  for (std::size_t begin = 0; begin < columns; begin += kSumsPiece) {
    each_thread([&] {
      const unsigned lane = threadIdx.x % kSumsOfRow, group = threadIdx.x / kSumsOfRow * kRowsOfThread;
      const std::size_t end = begin + kSumsPiece < columns ? begin + kSumsPiece : columns;
      const T* row[kRowsOfThread];
      const T* factor[kTogether];
      T own[kRowsOfThread][kTogether] = {};
#pragma unroll
      for (unsigned a = 0; a < kRowsOfThread; ++a)
        row[a] = m + (first + group + a < rows ? first + group + a : rows - 1) * columns;
#pragma unroll
      for (unsigned k = 0; k < kTogether; ++k) factor[k] = q + (k < used ? k : 0) * columns;
#pragma unroll 4
      for (std::size_t i = begin + lane; i < end; i += kSumsOfRow) {
        T x[kRowsOfThread];
#pragma unroll
        for (unsigned a = 0; a < kRowsOfThread; ++a) x[a] = row[a][i];
#pragma unroll
        for (unsigned k = 0; k < kTogether; ++k) {
          const T y = factor[k][i];
#pragma unroll
          for (unsigned a = 0; a < kRowsOfThread; ++a) own[a][k] += x[a] * y;
        }
      }
#pragma unroll
      for (unsigned a = 0; a < kRowsOfThread; ++a)
#pragma unroll
        for (unsigned k = 0; k < kTogether; ++k) sums[(group + a) * kTogether + k][lane] = own[a][k];
    });
    each_thread([&] {
      for (unsigned task = threadIdx.x; task < 8 * kResults; task += kBlock) {
        double sum = 0;
#pragma unroll
        for (unsigned k = 0; k < kSumsOfRow; k += 8) sum += static_cast<double>(sums[task / 8][k + task % 8]);
        eight[task / 8][task % 8] = sum;
      }
    });
    each_thread([&] {
      if (threadIdx.x < kResults) totals[threadIdx.x] += sum_of_eight(eight[threadIdx.x]);
    });
  }
  each_thread([&] {
    const std::size_t row = first + threadIdx.x / kTogether;
    const unsigned k = threadIdx.x % kTogether;
    if (threadIdx.x < kResults && row < rows && k < used)
      p[k * rows + row] = static_cast<T>(totals[threadIdx.x]);
  });
}

// Q <- M^T P in two levels: the sums over a slab of rows, one column of M per thread, then those of the
// slabs.
template <typename T, unsigned kTogether>
__global__ void __launch_bounds__(kBlock) slab_kernel(const T* m, const T* p, T* slabs, std::size_t rows,
                                                      std::size_t columns, std::size_t rank, unsigned used) {
  __shared__ T weights[kSlabRows][kTogether];
  const auto tiles = static_cast<unsigned>((columns + kBlock - 1) / kBlock);
  const std::size_t slab = blockIdx.x / tiles, first = slab * kSlabRows;
  const auto of_slab = static_cast<unsigned>(first + kSlabRows < rows ? kSlabRows : rows - first);
  each_thread([&] {
#pragma unroll
    for (unsigned k = 0; k < kTogether; ++k)
      if (threadIdx.x < of_slab)
        weights[threadIdx.x][k] = k < used ? p[k * rows + first + threadIdx.x] : T(0);
  });
  each_thread([&] {
    const std::size_t column = std::size_t{blockIdx.x % tiles} * kBlock + threadIdx.x;
    if (column >= columns) return;
    const T* at = m + first * columns + column;
    T own[kTogether] = {};
#pragma unroll 8
    for (unsigned row = 0; row < of_slab; ++row, at += columns) {
      const T x = *at;
#pragma unroll
      for (unsigned k = 0; k < kTogether; ++k) own[k] += weights[row][k] * x;
    }
#pragma unroll
    for (unsigned k = 0; k < kTogether; ++k)
      if (k < used) slabs[(slab * rank + k) * columns + column] = own[k];
  });
}
static_assert(kSlabRows <= kBlock);

// `count` sums per slab; each block adds up those of 32 elements.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    add_slabs_kernel(const T* slabs, T* q, std::size_t count, std::size_t number) {
  __shared__ double eight[kBlock / 8][8];
  const std::size_t first = std::size_t{blockIdx.x} * (kBlock / 8);
  each_thread([&] {
    const unsigned element = threadIdx.x % (kBlock / 8), part = threadIdx.x / (kBlock / 8);
    double sum = 0;
    if (first + element < count)
#pragma unroll 8
      for (std::size_t slab = part; slab < number; slab += 8)
        sum += static_cast<double>(slabs[slab * count + first + element]);
    eight[element][part] = sum;
  });
  each_thread([&] {
    if (threadIdx.x < kBlock / 8 && first + threadIdx.x < count)
      q[first + threadIdx.x] = static_cast<T>(sum_of_eight(eight[threadIdx.x]));
  });
}

// M <- P Q^T, or M += P Q^T; each block computes some rows of kBlock columns.
constexpr unsigned kRowsOfTile = 32;

template <typename T, unsigned kTogether>
__global__ void __launch_bounds__(kBlock) factors_kernel(const T* p, const T* q, T* m, std::size_t rows,
                                                         std::size_t columns, unsigned used, bool add) {
  __shared__ T weights[kRowsOfTile][kTogether];
  const auto tiles = static_cast<unsigned>((columns + kBlock - 1) / kBlock);
  const std::size_t first = std::size_t{blockIdx.x / tiles} * kRowsOfTile;
  const auto of_tile = static_cast<unsigned>(first + kRowsOfTile < rows ? kRowsOfTile : rows - first);
  each_thread([&] {
#pragma unroll
    for (unsigned k = 0; k < kTogether; ++k)
      if (threadIdx.x < of_tile)
        weights[threadIdx.x][k] = k < used ? p[k * rows + first + threadIdx.x] : T(0);
  });
  each_thread([&] {
    const std::size_t column = std::size_t{blockIdx.x % tiles} * kBlock + threadIdx.x;
    if (column >= columns) return;
    T y[kTogether];
#pragma unroll
    for (unsigned k = 0; k < kTogether; ++k) y[k] = k < used ? q[k * columns + column] : T(0);
    T* at = m + first * columns + column;
#pragma unroll 4
    for (unsigned row = 0; row < of_tile; ++row, at += columns) {
      T sum = add ? *at : T(0);
#pragma unroll
      for (unsigned k = 0; k < kTogether; ++k) sum += weights[row][k] * y[k];
      *at = sum;
    }
  });
}

// The sum of a[i] b[i] as orthonormalize() on the host adds it up; thread 0 gets the result.
template <typename T>
__device__ __forceinline__ double block_dot(const T* a, const T* b, std::size_t count, BlockSums& sums) {
  each_thread([&] {
    double own[4] = {};
    for (std::size_t i = 4 * threadIdx.x; i < count; i += 4 * kBlock)
#pragma unroll
      for (unsigned k = 0; k < 4; ++k)
        if (i + k < count) own[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k][threadIdx.x] = own[k];
  });
  return fold_block(sums);
}

// Subtracts from columns `first` and up, one per block, their part along the column before `first`, and
// normalizes column `first`, which is final then.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    orthonormalize_kernel(T* factor, std::size_t rows, std::size_t first) {
  __shared__ BlockSums sums;
  __shared__ double along, norm;
  T* own = factor + (first + blockIdx.x) * rows;
  if (first > 0) {
    const T* before = factor + (first - 1) * rows;
    const double dot = block_dot(before, own, rows, sums);
    each_thread([&] {
      if (threadIdx.x == 0) along = dot;
    });
    each_thread([&] {
      for (std::size_t i = threadIdx.x; i < rows; i += kBlock)
        own[i] = static_cast<T>(static_cast<double>(own[i]) - along * static_cast<double>(before[i]));
    });
  }
  if (blockIdx.x > 0) return;
  const double squares = block_dot(own, own, rows, sums);
  each_thread([&] {
    if (threadIdx.x == 0) norm = std::sqrt(squares);
  });
  each_thread([&] {
    if (norm > 0)
      for (std::size_t i = threadIdx.x; i < rows; i += kBlock)
        own[i] = static_cast<T>(static_cast<double>(own[i]) / norm);
  });
}

// Calls body with the number of factor columns that a kernel is compiled for.
template <typename Body>
void with_together(unsigned used, const Body& body) {
  if (used == 1) return body(Constant<1U>());
  if (used == 2) return body(Constant<2U>());
  if (used <= 4) return body(Constant<4U>());
  body(Constant<kMostTogether>());
}

// Calls body with the first factor column of each launch, the number of its columns, and a Constant of at
// least as many.
template <typename Body>
void for_columns(std::size_t rank, const Body& body) {
  for (std::size_t first = 0; first < rank; first += kMostTogether) {
    const auto used = static_cast<unsigned>(std::min<std::size_t>(kMostTogether, rank - first));
    with_together(used, [&](auto together) { body(first, used, together); });
  }
}

}  // namespace

void multiply(const OnDevice& here, DType dtype, void* p, const void* m, const void* q,
              const FactorShape& shape) {
  const auto [rows, columns, rank] = shape;
  as_parameters(dtype, [&]<typename T>(T) {
    for_columns(rank, [&](std::size_t first, unsigned used, auto together) {
      here.launch(&multiply_kernel<T, together()>, blocks_for(rows, kRowsOfBlock), static_cast<const T*>(m),
                  static_cast<const T*>(q) + first * columns, static_cast<T*>(p) + first * rows, rows,
                  columns, used);
    });
  });
}

void multiply_transposed(const OnDevice& here, DType dtype, void* q, const void* m, const void* p,
                         const FactorShape& shape) {
  const auto [rows, columns, rank] = shape;
  as_parameters(dtype, [&]<typename T>(T) {
    const unsigned number = blocks_for(rows, kSlabRows);
    const std::size_t count = rank * columns;
    const std::shared_ptr<void> memory = allocate(number * count * sizeof(T));
    T* slabs = static_cast<T*>(memory.get());
    if (number > 0)
      for_columns(rank, [&](std::size_t first, unsigned used, auto together) {
        here.launch(&slab_kernel<T, together()>, number * blocks_for(columns, kBlock),
                    static_cast<const T*>(m), static_cast<const T*>(p) + first * rows,
                    slabs + first * columns, rows, columns, rank, used);
      });
    here.launch(&add_slabs_kernel<T>, blocks_for(count, kBlock / 8), static_cast<const T*>(slabs),
                static_cast<T*>(q), count, std::size_t{number});
  });
}

void multiply_factors(const OnDevice& here, DType dtype, void* m, const void* p, const void* q,
                      const FactorShape& shape) {
  const auto [rows, columns, rank] = shape;
  as_parameters(dtype, [&]<typename T>(T) {
    for_columns(rank, [&](std::size_t first, unsigned used, auto together) {
      here.launch(&factors_kernel<T, together()>, blocks_for(rows, kRowsOfTile) * blocks_for(columns, kBlock),
                  static_cast<const T*>(p) + first * rows, static_cast<const T*>(q) + first * columns,
                  static_cast<T*>(m), rows, columns, used, first > 0);
    });
  });
}

void orthonormalize(const OnDevice& here, DType dtype, void* factor, std::size_t rows, std::size_t rank) {
  as_parameters(dtype, [&]<typename T>(T) {
    for (std::size_t first = 0; first < rank; ++first)
      here.launch(&orthonormalize_kernel<T>, first == 0 ? 1U : static_cast<unsigned>(rank - first),
                  static_cast<T*>(factor), rows, first);
  });
}

void load_matrix_kernels() {
  for (const DType dtype : {DType::float32, DType::float64})
    as_parameters(dtype, []<typename T>(T) {
      for (const unsigned used : {1U, 2U, 4U, kMostTogether})
        with_together(used, [](auto together) {
          load(&multiply_kernel<T, together()>);
          load(&slab_kernel<T, together()>);
          load(&factors_kernel<T, together()>);
        });
      load(&add_slabs_kernel<T>);
      load(&orthonormalize_kernel<T>);
    });
}

}  // namespace starling::kernel::cuda
