#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/tables.cuh"
#include "starling/kernel/element_rules.h"

namespace starling::kernel::cuda {
namespace {

// What an optimizer does with an element of type E: the next x from y and the gradient g, in the type that is
// computed in. Its state lies in kStates arrays (null: is not kept); `keeps` says whether the array changes.

template <typename E>
struct SgdStep {
  static constexpr int kStates = 1;
  rules::SgdNumbers<Computed<E>> numbers;
  E* state[kStates];

  template <typename T>
  __device__ __forceinline__ T operator()(T y, T g, T (&s)[kStates]) const {
    return rules::sgd(numbers, y, g, s[0]);
  }
  __device__ __forceinline__ bool keeps(int) const { return true; }
};

template <typename E>
struct AdamStep {
  static constexpr int kStates = 2;
  rules::AdamNumbers<Computed<E>> numbers;
  E* state[kStates];

  template <typename T>
  __device__ __forceinline__ T operator()(T y, T g, T (&s)[kStates]) const {
    return rules::adam(numbers, y, g, s[0], s[1]);
  }
  __device__ __forceinline__ bool keeps(int) const { return true; }
};

template <typename E>
struct AccumAdamStep {
  static constexpr int kStates = 3;
  rules::AdamNumbers<Computed<E>> numbers;
  E* state[kStates];  // m, v, sum
  Computed<E> share;  // 1 / s
  bool fold;

  template <typename T>
  __device__ __forceinline__ T operator()(T y, T g, T (&s)[kStates]) const {
    return rules::accum_adam(numbers, share, fold, y, g, s[0], s[1], s[2]);
  }
  __device__ __forceinline__ bool keeps(int i) const { return fold || i == 2; }
};

/// A copy of the result, of its type or a 16-bit one.
struct PassCopy {
  void* data;  // or null
  DType dtype;
};

/// The arrays of an UpdatePass.
template <typename E>
struct PassArrays {
  const E* gradient;
  E* x;
  PassCopy copies[2];
  bool* nonfinite;  // in host memory, or null
  Computed<E> scale;
  std::size_t count;
  int shift;
};

template <typename E, typename T, typename Elements, int kV>
__device__ __forceinline__ void load_numbers(const Elements& lanes, const E* from, T (&to)[kV]) {
  E elements[kV];
  lanes.load(from, elements);
#pragma unroll
  for (int k = 0; k < kV; ++k) to[k] = number_of(elements[k]);
}

template <typename E, typename T, typename Elements, int kV>
__device__ __forceinline__ void store_rounded(const Elements& lanes, void* to, const T (&y)[kV]) {
  E rounded[kV];
#pragma unroll
  for (int k = 0; k < kV; ++k) rounded[k] = element_of<E>(y[k]);
  lanes.store(static_cast<E*>(to), rounded);
}

template <typename E, typename Elements, int kV>
__device__ __forceinline__ void store_copy(const Elements& lanes, const PassCopy& copy,
                                           const Computed<E> (&y)[kV]) {
  if (copy.data == nullptr) return;
  if (copy.dtype == dtype_of<E>) {
    store_rounded<E>(lanes, copy.data, y);
  } else if constexpr (std::is_same_v<E, float>) {
    if (copy.dtype == DType::float16)
      store_rounded<Half>(lanes, copy.data, y);
    else
      store_rounded<BFloat16>(lanes, copy.data, y);
  }
}

template <typename E, int kTerms, template <typename> typename Step, typename Elements>
__device__ __forceinline__ void update(const SumArgument<Computed<E>>& sum, const PassArrays<E>& pass,
                                       const Step<E>& step, const Elements& lanes) {
  using T = Computed<E>;
  constexpr int kV = Elements::kLanes;
  constexpr int kStates = Step<E>::kStates;
  T g[kV], state[kStates][kV] = {}, y[kV];
  load_numbers(lanes, pass.gradient, g);
#pragma unroll
  for (int i = 0; i < kStates; ++i)
    if (step.state[i] != nullptr) load_numbers(lanes, step.state[i], state[i]);
  sum_up<E, kTerms>(sum, lanes, y);
  bool odd = false;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    T one[kStates];
#pragma unroll
    for (int i = 0; i < kStates; ++i) one[i] = state[i][k];
    y[k] = step(y[k], pass.scale * g[k], one);
#pragma unroll
    for (int i = 0; i < kStates; ++i) state[i][k] = one[i];
    // What a 16-bit type has no room for becomes infinite when it is rounded.
    const T kept = number_of(element_of<E>(y[k]));
    odd = odd || kept - kept != T(0);  // +0 for every finite number, otherwise a NaN
  }
#pragma unroll
  for (int i = 0; i < kStates; ++i)
    if (step.state[i] != nullptr && step.keeps(i)) store_rounded<E>(lanes, step.state[i], state[i]);
  store_rounded<E>(lanes, pass.x, y);
#pragma unroll 1  // the code of one for both
  for (const PassCopy& copy : pass.copies) store_copy<E>(lanes, copy, y);
  if (odd && pass.nonfinite != nullptr) *pass.nonfinite = true;
}

template <typename E, template <typename> typename Step, Access kAccess, int kTerms>
__global__ void __launch_bounds__(kBlock)
    update_kernel(const __grid_constant__ SumArgument<Computed<E>> sum,
                  const __grid_constant__ PassArrays<E> pass, const __grid_constant__ Step<E> step) {
  each_lane<kAccess, kLanesOf<E>>(pass.count, pass.shift, [&](const auto& lanes) {
    update<E, terms_at(std::decay_t<decltype(lanes)>::kLanes, kTerms)>(sum, pass, step, lanes);
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
  const SumArgument<Computed<E>> sum = plan_on<Computed<E>>(here, dtype_of<E>, pass.from);
  const std::size_t count = pass.x.count;
  PassArrays<E> arrays{static_cast<const E*>(pass.gradient.address()),
                       static_cast<E*>(pass.x.address()),
                       {{pass.copy.address(), pass.copy.dtype}, {pass.rounded.address(), pass.rounded.dtype}},
                       pass.nonfinite,
                       static_cast<Computed<E>>(pass.gradient_scale),
                       count,
                       0};
  ShapeFinder finder(count, kLanesOf<E>);
  for (const Term& term : pass.from) finder.add(term.data, sizeof(E));
  for (const E* state : step.state) finder.add(state, sizeof(E));
  const Shape shape = finder.add(arrays.gradient, sizeof(E))
                          .add(arrays.x, sizeof(E))
                          .add(pass.copy.address(), size_of(pass.copy.dtype))
                          .add(pass.rounded.address(), size_of(pass.rounded.dtype))
                          .shape();
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
