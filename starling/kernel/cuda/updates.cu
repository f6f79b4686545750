#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/tables.cuh"
#include "starling/kernel/element_rules.h"

namespace starling::kernel::cuda {
namespace {

// An optimizer's rule for one element: the next x from y and the gradient g. Its state is in kStates arrays
// (null: not kept); `keeps` says whether the array changes.

template <typename T>
struct SgdStep {
  static constexpr int kStates = 1;
  rules::SgdNumbers<T> numbers;
  T* state[kStates];

  __device__ __forceinline__ T operator()(T y, T g, T (&s)[kStates]) const {
    return rules::sgd(numbers, y, g, s[0]);
  }
  __device__ __forceinline__ bool keeps(int) const { return true; }
};

template <typename T>
struct AdamStep {
  static constexpr int kStates = 2;
  rules::AdamNumbers<T> numbers;
  T* state[kStates];

  __device__ __forceinline__ T operator()(T y, T g, T (&s)[kStates]) const {
    return rules::adam(numbers, y, g, s[0], s[1]);
  }
  __device__ __forceinline__ bool keeps(int) const { return true; }
};

template <typename T>
struct AccumAdamStep {
  static constexpr int kStates = 3;
  rules::AdamNumbers<T> numbers;
  T* state[kStates];  // m, v, sum
  T share;            // 1 / s
  bool fold;

  __device__ __forceinline__ T operator()(T y, T g, T (&s)[kStates]) const {
    return rules::accum_adam(numbers, share, fold, y, g, s[0], s[1], s[2]);
  }
  __device__ __forceinline__ bool keeps(int i) const { return fold || i == 2; }
};

/// The arrays of an UpdatePass.
template <typename T>
struct PassArrays {
  const T* gradient;
  T* x;
  void* copy;       // or null
  DType copy_type;  // T or a 16-bit type
  bool* nonfinite;  // in host memory, or null
  T scale;
  std::size_t count;
  int shift;
};

template <typename E, Access kAccess, int kV>
__device__ __forceinline__ void store_rounded(const Lanes<kAccess, kV>& lanes, void* to,
                                              const float (&y)[kV]) {
  E rounded[kV];
#pragma unroll
  for (int k = 0; k < kV; ++k) rounded[k] = element_of<E>(y[k]);
  lanes.store(static_cast<E*>(to), rounded);
}

template <typename T, Access kAccess, int kV>
__device__ __forceinline__ void store_copy(const Lanes<kAccess, kV>& lanes, const PassArrays<T>& pass,
                                           const T (&y)[kV]) {
  if (pass.copy_type == dtype_of<T>) {
    lanes.store(static_cast<T*>(pass.copy), y);
  } else if constexpr (std::is_same_v<T, float>) {
    if (pass.copy_type == DType::float16)
      store_rounded<Half>(lanes, pass.copy, y);
    else
      store_rounded<BFloat16>(lanes, pass.copy, y);
  }
}

template <typename T, template <typename> typename Step, Access kAccess, int kTerms>
__global__ void __launch_bounds__(kBlock)
    update_kernel(const __grid_constant__ SumArgument<T> sum, const __grid_constant__ PassArrays<T> pass,
                  const __grid_constant__ Step<T> step) {
  constexpr int kV = kLanesOf<T>;
  constexpr int kStates = Step<T>::kStates;
  const Lanes<kAccess, kV> lanes(pass.count, pass.shift);
  T g[kV], state[kStates][kV] = {}, y[kV];
  lanes.load(pass.gradient, g);
#pragma unroll
  for (int i = 0; i < kStates; ++i)
    if (step.state[i] != nullptr) lanes.load(step.state[i], state[i]);
  sum_up<T, kTerms>(sum, lanes, y);
  bool odd = false;
#pragma unroll
  for (int k = 0; k < kV; ++k) {
    T one[kStates];
#pragma unroll
    for (int i = 0; i < kStates; ++i) one[i] = state[i][k];
    y[k] = step(y[k], pass.scale * g[k], one);
#pragma unroll
    for (int i = 0; i < kStates; ++i) state[i][k] = one[i];
    odd = odd || (lanes.has(k) && y[k] - y[k] != T(0));  // +0 for every finite number, otherwise a NaN
  }
#pragma unroll
  for (int i = 0; i < kStates; ++i)
    if (step.state[i] != nullptr && step.keeps(i)) lanes.store(step.state[i], state[i]);
  lanes.store(pass.x, y);
  if (pass.copy != nullptr) store_copy(lanes, pass, y);
  if (odd && pass.nonfinite != nullptr) *pass.nonfinite = true;
}

template <typename T, template <typename> typename Step>
const auto& update_kernels() {
  static constexpr auto kTable =
      by_terms([](auto access, auto terms) { return &update_kernel<T, Step, access(), terms()>; });
  return kTable;
}

template <typename T, template <typename> typename Step>
void update_with(const OnDevice& here, const UpdatePass& pass, const Step<T>& step) {
  const SumArgument<T> sum = plan_on<T>(here, dtype_of<T>, pass.from);
  const std::size_t count = pass.x.count;
  PassArrays<T> arrays{static_cast<const T*>(pass.gradient.address()),
                       static_cast<T*>(pass.x.address()),
                       pass.copy.address(),
                       pass.copy.dtype,
                       pass.nonfinite,
                       static_cast<T>(pass.gradient_scale),
                       count,
                       0};
  ShapeFinder finder(count, kLanesOf<T>);
  for (const Term& term : pass.from) finder.add(term.data, sizeof(T));
  for (T* state : step.state) finder.add(state, sizeof(T));
  const Shape shape = finder.add(arrays.gradient, sizeof(T))
                          .add(arrays.x, sizeof(T))
                          .add(arrays.copy, size_of(arrays.copy_type))
                          .shape();
  arrays.shift = shape.shift;
  here.launch(update_kernels<T, Step>()[shape.index()][term_class(pass.from.size())], shape.blocks, sum,
              arrays, step);
}

template <typename T, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    moments_kernel(const __grid_constant__ MomentRule rule, const T* x, const T* gradient, T* m, T* v,
                   std::size_t count, int shift) {
  constexpr int kV = kLanesOf<T>;
  const Lanes<kAccess, kV> lanes(count, shift);
  T at[kV], g[kV], first[kV], second[kV];
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
}

template <typename T, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    moment_step_kernel(const __grid_constant__ MomentStepRule rule, T* x, const T* m, const T* v,
                       std::size_t count, int shift) {
  constexpr int kV = kLanesOf<T>;
  const Lanes<kAccess, kV> lanes(count, shift);
  T at[kV], first[kV], second[kV];
  lanes.load(x, at);
  lanes.load(m, first);
  lanes.load(v, second);
#pragma unroll
  for (int k = 0; k < kV; ++k) at[k] = rules::moment_step(rule, at[k], first[k], second[k]);
  lanes.store(x, at);
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
  as_parameters(pass.x.dtype, [&]<typename T>(T) {
    T* kept = rule.momentum != 0 ? static_cast<T*>(m) : nullptr;
    update_with<T, SgdStep>(here, pass, {{rule, first}, {kept}});
  });
}

void adam_update(const OnDevice& here, const UpdatePass& pass, const AdamRule& rule, void* m, void* v,
                 long t) {
  as_parameters(pass.x.dtype, [&]<typename T>(T) {
    update_with<T, AdamStep>(here, pass, {{rule, t}, {static_cast<T*>(m), static_cast<T*>(v)}});
  });
}

void accum_adam_update(const OnDevice& here, const UpdatePass& pass, const AdamRule& rule, void* m, void* v,
                       void* sum, long t, long s, bool fold) {
  as_parameters(pass.x.dtype, [&]<typename T>(T) {
    update_with<T, AccumAdamStep>(here, pass,
                                  {{rule, t},
                                   {static_cast<T*>(m), static_cast<T*>(v), static_cast<T*>(sum)},
                                   static_cast<T>(1 / static_cast<double>(s)),
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
  for (const DType dtype : {DType::float64, DType::float32})
    as_parameters(dtype, []<typename T>(T) {
      load(update_kernels<T, SgdStep>());
      load(update_kernels<T, AdamStep>());
      load(update_kernels<T, AccumAdamStep>());
      load(moments_kernels<T>());
      load(moment_step_kernels<T>());
    });
}

}  // namespace starling::kernel::cuda
