#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/tables.cuh"

namespace starling::kernel::cuda {
namespace {

template <typename E, Access kAccess, int kTerms>
__global__ void __launch_bounds__(kBlock) combine_kernel(const __grid_constant__ SumArgument<Computed<E>> sum,
                                                         E* out, std::size_t count, int shift) {
  each_lane<kAccess, kLanesOf<E>>(count, shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    Computed<E> y[kV];
    sum_up<E, terms_at(kV, kTerms)>(sum, lanes, y);
    E result[kV];
#pragma unroll
    for (int k = 0; k < kV; ++k) result[k] = element_of<E>(y[k]);
    lanes.store(out, result);
  });
}

template <typename E>
const auto& combine_kernels() {
  static constexpr auto kTable =
      by_terms([](auto access, auto terms) { return &combine_kernel<E, access(), terms()>; });
  return kTable;
}

// The first term is this rank's own message.
template <typename Message, Access kAccess, int kTerms>
__global__ void __launch_bounds__(kBlock)
    around_kernel(const __grid_constant__ SumArgument<Computed<Message>> sum, const Computed<Message>* x,
                  Computed<Message>* out, std::size_t count, int shift) {
  using T = Computed<Message>;
  const bool alone = sum.count() == 1;
  each_lane<kAccess, kLanesOf<T>>(count, shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    T before[kV] = {}, own[kV], pull[kV];
    if (x != nullptr) lanes.load(x, before);
    add_up<Message, terms_at(kV, kTerms)>(sum, lanes, own, pull);
    // Subtracted, so that x without differences keeps even the sign of zero.
#pragma unroll
    for (int k = 0; k < kV; ++k) before[k] = before[k] - (alone ? T(0) : pull[k]);
    lanes.store(out, before);
  });
}

template <typename Message>
const auto& around_kernels() {
  static constexpr auto kTable =
      by_terms([](auto access, auto terms) { return &around_kernel<Message, access(), terms()>; });
  return kTable;
}

template <typename E>
void combine_as(const OnDevice& here, void* out, std::span<const Term> terms, std::size_t count) {
  const SumArgument<Computed<E>> sum = plan_on<Computed<E>>(here, dtype_of<E>, terms);
  ShapeFinder finder(count, kLanesOf<E>);
  for (const Term& term : terms) finder.add(term.data, sizeof(E));
  const Shape shape = finder.add(out, sizeof(E)).shape();
  here.launch(combine_kernels<E>()[shape.index()][term_class(terms.size())], shape.blocks, sum,
              static_cast<E*>(out), count, shape.shift);
}

template <typename Message>
void around_as(const OnDevice& here, void* out, const void* x, std::span<const Term> terms,
               std::size_t count) {
  using T = Computed<Message>;
  const SumArgument<T> sum = plan_on<T>(here, dtype_of<Message>, terms, true);
  ShapeFinder finder(count, kLanesOf<T>);
  for (const Term& term : terms) finder.add(term.data, sizeof(Message));
  const Shape shape = finder.add(x, sizeof(T)).add(out, sizeof(T)).shape();
  here.launch(around_kernels<Message>()[shape.index()][term_class(terms.size())], shape.blocks, sum,
              static_cast<const T*>(x), static_cast<T*>(out), count, shape.shift);
}

}  // namespace

void combine(const OnDevice& here, DType dtype, void* out, std::span<const Term> terms, std::size_t count) {
  as_floating(dtype, [&]<typename E>(std::type_identity<E>) { combine_as<E>(here, out, terms, count); });
}

void combine_around(const OnDevice& here, DType message, void* out, const void* x,
                    std::span<const Term> terms, std::size_t count) {
  as_floating(message, [&]<typename Message>(std::type_identity<Message>) {
    around_as<Message>(here, out, x, terms, count);
  });
}

void load_sum_kernels() {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16})
    as_floating(dtype, []<typename E>(std::type_identity<E>) {
      load(combine_kernels<E>());
      load(around_kernels<E>());
    });
}

}  // namespace starling::kernel::cuda
