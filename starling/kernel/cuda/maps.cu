#include "starling/base/error.h"
#include "starling/kernel/cuda/elements.cuh"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/tables.cuh"
#include "starling/kernel/element_rules.h"

namespace starling::kernel::cuda {
namespace {

template <typename E, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    divide_kernel(E* data, Computed<E> divisor, std::size_t count, int shift) {
  each_lane<kAccess, kLanesOf<E>>(count, shift, [&](const auto& lanes) {
    E x[std::decay_t<decltype(lanes)>::kLanes];
    lanes.load(data, x);
#pragma unroll
    for (E& one : x) one = element_of<E>(number_of(one) / divisor);
    lanes.store(data, x);
  });
}

template <typename E>
const auto& divide_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &divide_kernel<E, access()>; });
  return kTable;
}

// x <- factor * x, clipped.
template <typename E, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    clip_kernel(E* data, double factor, const double* squares, double limit, std::size_t count, int shift) {
  const auto scale = static_cast<Computed<E>>(rules::clipped(factor, *squares, limit));
  each_lane<kAccess, kLanesOf<E>>(count, shift, [&](const auto& lanes) {
    E x[std::decay_t<decltype(lanes)>::kLanes];
    lanes.load(data, x);
#pragma unroll
    for (E& one : x) one = element_of<E>(scale * number_of(one));
    lanes.store(data, x);
  });
}

template <typename E>
const auto& clip_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &clip_kernel<E, access()>; });
  return kTable;
}

template <typename E, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    divide_by_kernel(E* out, const E* in, const double* number, std::size_t count, int shift) {
  const double divisor = *number;
  if (!(divisor > 0)) return;
  const auto weight = static_cast<Computed<E>>(1 / divisor);
  each_lane<kAccess, kLanesOf<E>>(count, shift, [&](const auto& lanes) {
    E x[std::decay_t<decltype(lanes)>::kLanes];
    lanes.load(in, x);
#pragma unroll
    for (E& one : x) one = element_of<E>(weight * number_of(one));
    lanes.store(out, x);
  });
}

template <typename E>
const auto& divide_by_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &divide_by_kernel<E, access()>; });
  return kTable;
}

template <typename E>
__device__ __forceinline__ E reduced(Reduction reduction, E a, E b) {
  if (reduction == Reduction::min) return element_of<E>(rules::minimum(number_of(a), number_of(b)));
  if (reduction == Reduction::max) return element_of<E>(rules::maximum(number_of(a), number_of(b)));
  if constexpr (is_floating_element<E>) {
    return element_of<E>(number_of(a) + number_of(b));
  } else {
    using Wrapping = std::make_unsigned_t<E>;
    return static_cast<E>(static_cast<Wrapping>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b)));
  }
}

template <typename E, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    reduce_kernel(Reduction reduction, E* accumulator, const E* in, std::size_t count, int shift) {
  each_lane<kAccess, kLanesOf<E>>(count, shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    E a[kV], b[kV];
    lanes.load(accumulator, a);
    lanes.load(in, b);
#pragma unroll
    for (int k = 0; k < kV; ++k) a[k] = reduced(reduction, a[k], b[k]);
    lanes.store(accumulator, a);
  });
}

template <typename E>
const auto& reduce_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &reduce_kernel<E, access()>; });
  return kTable;
}

template <typename From, typename To>
inline constexpr int kLanesOfBoth = kLanesOf<std::conditional_t<(sizeof(From) > sizeof(To)), From, To>>;

template <typename From, typename To, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    convert_kernel(const From* in, To* out, std::size_t count, int shift) {
  each_lane<kAccess, kLanesOfBoth<From, To>>(count, shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    From x[kV];
    To result[kV];
    lanes.load(in, x);
#pragma unroll
    for (int k = 0; k < kV; ++k) result[k] = element_of<To>(static_cast<Computed<To>>(number_of(x[k])));
    lanes.store(out, result);
  });
}

template <typename From, typename To>
const auto& convert_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &convert_kernel<From, To, access()>; });
  return kTable;
}

// Copies bytes of any type.
template <Access kAccess>
__global__ void __launch_bounds__(kBlock)
    swap_kernel(std::uint8_t* a, std::uint8_t* b, std::size_t count, int shift) {
  each_lane<kAccess, kLanesOf<std::uint8_t>>(count, shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    std::uint8_t x[kV], y[kV];
    lanes.load(a, x);
    lanes.load(b, y);
    lanes.store(a, y);
    lanes.store(b, x);
  });
}

const auto& swap_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &swap_kernel<access()>; });
  return kTable;
}

// Copies bits of any type.
template <typename Bits>
__global__ void __launch_bounds__(kBlock) copy_strided_kernel(Bits* out, std::size_t out_step, const Bits* in,
                                                              std::size_t in_step, std::size_t count) {
  const std::size_t k = std::size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (k < count) out[k * out_step] = in[k * in_step];
}

// A launch gathers several parts, each by blocks of its own.
constexpr int kGatheredAtOnce = 64;
constexpr std::size_t kGatheredPerBlock = 8192;  // bytes

struct GatherPlan {
  const void* from[kGatheredAtOnce];  // null: zeros
  std::size_t begin[kGatheredAtOnce];
  std::size_t count[kGatheredAtOnce];
  unsigned first_block[kGatheredAtOnce];
  int parts;
};

template <typename Bits>
__global__ void __launch_bounds__(kBlock) gather_kernel(const __grid_constant__ GatherPlan plan, Bits* out) {
  int low = 0;
  for (int high = plan.parts; high - low > 1;) {
    const int middle = (low + high) / 2;
    (plan.first_block[middle] <= blockIdx.x ? low : high) = middle;
  }
  constexpr std::size_t kPerBlock = kGatheredPerBlock / sizeof(Bits);
  constexpr std::size_t kLanes = sizeof(uint4) / sizeof(Bits);
  const std::size_t first = (blockIdx.x - plan.first_block[low]) * kPerBlock;
  const std::size_t left = plan.count[low] - first;
  const std::size_t count = left < kPerBlock ? left : kPerBlock;
  Bits* to = out + plan.begin[low] + first;
  const auto* from = static_cast<const Bits*>(plan.from[low]);
  if (from != nullptr) from += first;
  const bool aligned =
      (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % sizeof(uint4) == 0;
  const std::size_t words = aligned ? count / kLanes : 0;
#pragma unroll 2
  for (std::size_t w = threadIdx.x; w < words; w += kBlock)
    reinterpret_cast<uint4*>(to)[w] =
        from != nullptr ? __ldcs(reinterpret_cast<const uint4*>(from) + w) : uint4{};
  for (std::size_t i = words * kLanes + threadIdx.x; i < count; i += kBlock)
    to[i] = from != nullptr ? from[i] : Bits{};
}

// Calls body with an unsigned type of this size.
template <typename Body>
void with_bits(std::size_t element, const Body& body) {
  if (element == 1) return body(std::uint8_t{});
  if (element == 2) return body(std::uint16_t{});
  if (element == 4) return body(std::uint32_t{});
  body(std::uint64_t{});
}

template <typename From, typename To>
void convert_as(const OnDevice& here, const void* in, void* out, std::size_t count) {
  const Shape shape =
      ShapeFinder(count, kLanesOfBoth<From, To>).add(in, sizeof(From)).add(out, sizeof(To)).shape();
  here.launch(convert_kernels<From, To>()[shape.index()], shape.blocks, static_cast<const From*>(in),
              static_cast<To*>(out), count, shape.shift);
}

// Calls body with the types of each conversion until it returns true; returns false if it never does.
template <typename Body>
bool any_conversion(const Body& body) {
  const auto both_ways = [&]<typename A, typename B>(std::type_identity<A> a, std::type_identity<B> b) {
    return body(a, b) || body(b, a);
  };
  constexpr std::type_identity<float> kFloat;
  return both_ways(kFloat, std::type_identity<Half>()) || both_ways(kFloat, std::type_identity<BFloat16>()) ||
         both_ways(kFloat, std::type_identity<double>());
}

}  // namespace

void convert(const OnDevice& here, DType from, const void* in, DType to, void* out, std::size_t count) {
  const bool found =
      any_conversion([&]<typename A, typename B>(std::type_identity<A>, std::type_identity<B>) {
        if (from != dtype_of<A> || to != dtype_of<B>) return false;
        convert_as<A, B>(here, in, out, count);
        return true;
      });
  if (!found)
    throw InvalidArgument("convert: no conversion from " + name(from) + " to " + name(to) +
                          "; there are float32 <-> float16, bfloat16 and float64");
}

void reduce(const OnDevice& here, Reduction reduction, DType dtype, void* accumulator, const void* in,
            std::size_t count) {
  dispatch(dtype, [&]<typename E>(std::type_identity<E>) {
    const Shape shape =
        ShapeFinder(count, kLanesOf<E>).add(accumulator, sizeof(E)).add(in, sizeof(E)).shape();
    here.launch(reduce_kernels<E>()[shape.index()], shape.blocks, reduction, static_cast<E*>(accumulator),
                static_cast<const E*>(in), count, shape.shift);
  });
}

void divide(const OnDevice& here, DType dtype, void* data, double number, std::size_t count) {
  dispatch(dtype, [&]<typename E>(std::type_identity<E>) {
    if constexpr (is_floating_element<E>) {
      const Shape shape = ShapeFinder(count, kLanesOf<E>).add(data, sizeof(E)).shape();
      here.launch(divide_kernels<E>()[shape.index()], shape.blocks, static_cast<E*>(data),
                  static_cast<Computed<E>>(number), count, shape.shift);
    }
  });
}

void clip(const OnDevice& here, DType dtype, void* data, double factor, const double* squares, double limit,
          std::size_t count) {
  as_floating(dtype, [&]<typename E>(std::type_identity<E>) {
    const Shape shape = ShapeFinder(count, kLanesOf<E>).add(data, sizeof(E)).shape();
    here.launch(clip_kernels<E>()[shape.index()], shape.blocks, static_cast<E*>(data), factor, squares, limit,
                count, shape.shift);
  });
}

void divide_by(const OnDevice& here, DType dtype, void* out, const void* in, const double* number,
               std::size_t count) {
  as_floating(dtype, [&]<typename E>(std::type_identity<E>) {
    const Shape shape = ShapeFinder(count, kLanesOf<E>).add(out, sizeof(E)).add(in, sizeof(E)).shape();
    here.launch(divide_by_kernels<E>()[shape.index()], shape.blocks, static_cast<E*>(out),
                static_cast<const E*>(in), number, count, shape.shift);
  });
}

void gather(const OnDevice& here, std::size_t element, void* out, std::span<const GatheredPart> parts) {
  const std::size_t per_block = kGatheredPerBlock / element;
  for (std::size_t next = 0; next < parts.size();) {
    GatherPlan plan{};
    unsigned blocks = 0;
    for (; next < parts.size() && plan.parts < kGatheredAtOnce; ++next) {
      if (parts[next].count == 0) continue;
      const int p = plan.parts++;
      plan.from[p] = parts[next].from;
      plan.begin[p] = parts[next].begin;
      plan.count[p] = parts[next].count;
      plan.first_block[p] = blocks;
      blocks += static_cast<unsigned>((parts[next].count + per_block - 1) / per_block);
    }
    if (blocks > 0)
      with_bits(element, [&]<typename Bits>(Bits) {
        here.launch(&gather_kernel<Bits>, blocks, plan, static_cast<Bits*>(out));
      });
  }
}

void swap(const OnDevice& here, void* a, void* b, std::size_t bytes) {
  const Shape shape = ShapeFinder(bytes, kLanesOf<std::uint8_t>).add(a, 1).add(b, 1).shape();
  here.launch(swap_kernels()[shape.index()], shape.blocks, static_cast<std::uint8_t*>(a),
              static_cast<std::uint8_t*>(b), bytes, shape.shift);
}

void copy_strided(const OnDevice& here, std::size_t element, void* out, std::size_t out_step, const void* in,
                  std::size_t in_step, std::size_t count) {
  with_bits(element, [&]<typename Bits>(Bits) {
    here.launch(&copy_strided_kernel<Bits>, static_cast<unsigned>((count + kBlock - 1) / kBlock),
                static_cast<Bits*>(out), out_step, static_cast<const Bits*>(in), in_step, count);
  });
}

void load_map_kernels() {
  for (const std::size_t element : {1, 2, 4, 8})
    with_bits(element, []<typename Bits>(Bits) {
      load(&copy_strided_kernel<Bits>);
      load(&gather_kernel<Bits>);
    });
  for (int dtype = 0; dtype <= static_cast<int>(DType::uint8); ++dtype)
    dispatch(static_cast<DType>(dtype), []<typename E>(std::type_identity<E>) {
      load(reduce_kernels<E>());
      if constexpr (is_floating_element<E>) {
        load(divide_kernels<E>());
        load(clip_kernels<E>());
        load(divide_by_kernels<E>());
      }
    });
  any_conversion([]<typename A, typename B>(std::type_identity<A>, std::type_identity<B>) {
    load(convert_kernels<A, B>());
    return false;
  });
  load(swap_kernels());
}

}  // namespace starling::kernel::cuda
