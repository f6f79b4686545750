#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/steps.cuh"
#include "starling/kernel/cuda/tables.cuh"
#include "starling/kernel/element_rules.h"

namespace starling::kernel::cuda {
namespace {

template <typename E, template <typename> typename Step, Access kAccess, int kTerms>
__global__ void __launch_bounds__(kBlock)
    update_kernel(const __grid_constant__ SumArgument<Computed<E>> sum,
                  const __grid_constant__ PassArrays<E> pass, const __grid_constant__ Step<E> step) {
  each_lane<kAccess, kLanesOf<E>>(pass.count, pass.shift, [&](const auto& lanes) {
    constexpr int kLanes = std::decay_t<decltype(lanes)>::kLanes;
    Computed<E> y[kLanes];
    update([&](const auto& here, auto& into) { sum_up<E, terms_at(kLanes, kTerms)>(sum, here, into); }, pass,
           step, lanes, y);
  });
}

template <typename E, template <typename> typename Step>
const auto& update_kernels() {
  // 16-bit types compile slowly: every element is converted.
  static constexpr auto kTable = by_terms<sizeof(E) == 2>(
      [](auto access, auto terms) { return &update_kernel<E, Step, access(), terms()>; });
  return kTable;
}

template <typename E, template <typename> typename Step>
void update_with(const OnDevice& here, const UpdatePass& pass, const Step<E>& step) {
  if constexpr (std::is_same_v<E, float>)
    if (pass.messages || pass.has_int8()) return update_with_messages(here, pass, step);
  const SumArgument<Computed<E>> sum = plan_on<Computed<E>>(here, dtype_of<E>, pass.from);
  PassArrays<E> arrays = arrays_of<E>(pass);
  ShapeFinder finder(arrays.count, kLanesOf<E>);
  for (const Term& term : pass.from) finder.add(term.data, sizeof(E));
  const Shape shape = shape_of(finder, arrays, step);
  arrays.shift = shape.shift;
  here.launch(update_kernels<E, Step>()[shape.index()][term_class(pass.from.size())], shape.blocks, sum,
              arrays, step);
}

template <typename T, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    moments_kernel(const __grid_constant__ MomentRule rule, const T* x, const T* gradient, T* m, T* v,
                   std::size_t count, int shift) {
  each_lane<kAccess, kLanesOf<T>>(count, shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    T at[kV], g[kV], first[kV], second[kV] = {};
    lanes.load(x, at);
    lanes.load(gradient, g);
    lanes.load(m, first);
    if (v != nullptr) lanes.load(v, second);
#pragma unroll
    for (int k = 0; k < kV; ++k) first[k] = rules::first_moment(rule, at[k], g[k], first[k]);
    lanes.store(m, first);
    if (v == nullptr) return;
#pragma unroll
    for (int k = 0; k < kV; ++k) second[k] = rules::second_moment(rule, at[k], g[k], second[k]);
    lanes.store(v, second);
  });
}

template <typename T, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    moment_step_kernel(const __grid_constant__ MomentStepRule rule, T* x, const T* m, const T* v,
                       std::size_t count, int shift) {
  each_lane<kAccess, kLanesOf<T>>(count, shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    T at[kV], first[kV], second[kV];
    lanes.load(x, at);
    lanes.load(m, first);
    lanes.load(v, second);
#pragma unroll
    for (int k = 0; k < kV; ++k) at[k] = rules::moment_step(rule, at[k], first[k], second[k]);
    lanes.store(x, at);
  });
}

template <typename T>
const auto& moments_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &moments_kernel<T, access()>; });
  return kTable;
}
template <typename T>
const auto& moment_step_kernels() {
  static constexpr auto kTable = by_access([](auto access) { return &moment_step_kernel<T, access()>; });
  return kTable;
}

}  // namespace

void sgd_update(const OnDevice& here, const UpdatePass& pass, const SgdRule& rule, void* m, bool first) {
  as_floating(pass.x.dtype, [&]<typename E>(std::type_identity<E>) {
    E* kept = rule.momentum != 0 ? static_cast<E*>(m) : nullptr;
    update_with<E, SgdStep>(here, pass, {{rule, first}, {kept}});
  });
}

void adam_update(const OnDevice& here, const UpdatePass& pass, const AdamRule& rule, void* m, void* v,
                 long t) {
  as_floating(pass.x.dtype, [&]<typename E>(std::type_identity<E>) {
    update_with<E, AdamStep>(here, pass, {{rule, t}, {static_cast<E*>(m), static_cast<E*>(v)}});
  });
}

void accum_adam_update(const OnDevice& here, const UpdatePass& pass, const AdamRule& rule, void* m, void* v,
                       void* sum, long t, long s, bool fold) {
  as_floating(pass.x.dtype, [&]<typename E>(std::type_identity<E>) {
    update_with<E, AccumAdamStep>(here, pass,
                                  {{rule, t},
                                   {static_cast<E*>(m), static_cast<E*>(v), static_cast<E*>(sum)},
                                   static_cast<Computed<E>>(1 / static_cast<double>(s)),
                                   fold});
  });
}

void moments(const OnDevice& here, DType dtype, const MomentRule& rule, const void* x, const void* gradient,
             void* m, void* v, std::size_t count) {
  as_parameters(dtype, [&]<typename T>(T) {
    const Shape shape = ShapeFinder(count, kLanesOf<T>)
                            .add(x, sizeof(T))
                            .add(gradient, sizeof(T))
                            .add(m, sizeof(T))
                            .add(v, sizeof(T))
                            .shape();
    here.launch(moments_kernels<T>()[shape.index()], shape.blocks, rule, static_cast<const T*>(x),
                static_cast<const T*>(gradient), static_cast<T*>(m), static_cast<T*>(v), count, shape.shift);
  });
}

void moment_step(const OnDevice& here, DType dtype, const MomentStepRule& rule, void* x, const void* m,
                 const void* v, std::size_t count) {
  as_parameters(dtype, [&]<typename T>(T) {
    const Shape shape =
        ShapeFinder(count, kLanesOf<T>).add(x, sizeof(T)).add(m, sizeof(T)).add(v, sizeof(T)).shape();
    here.launch(moment_step_kernels<T>()[shape.index()], shape.blocks, rule, static_cast<T*>(x),
                static_cast<const T*>(m), static_cast<const T*>(v), count, shape.shift);
  });
}

void load_update_kernels() {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16})
    as_floating(dtype, []<typename E>(std::type_identity<E>) {
      load(update_kernels<E, SgdStep>());
      load(update_kernels<E, AdamStep>());
      load(update_kernels<E, AccumAdamStep>());
    });
  for (const DType dtype : {DType::float64, DType::float32})
    as_parameters(dtype, []<typename T>(T) {
      load(moments_kernels<T>());
      load(moment_step_kernels<T>());
    });
}

}  // namespace starling::kernel::cuda
