#pragma once

#include "starling/kernel/cuda/elements.cuh"
#include "starling/kernel/cuda/on_device.h"
#include "starling/kernel/element_rules.h"

// The passes of local optimizers in kernels.

namespace starling::kernel::cuda {

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

/// Updates the thread's elements: y <- the next x, with y = start(lanes, y).
template <typename E, template <typename> typename Step, typename Elements, typename Start>
__device__ __forceinline__ void update(const Start& start, const PassArrays<E>& pass, const Step<E>& step,
                                       const Elements& lanes, Computed<E> (&y)[Elements::kLanes]) {
  using T = Computed<E>;
  constexpr int kV = Elements::kLanes;
  constexpr int kStates = Step<E>::kStates;
  T g[kV], state[kStates][kV] = {};
  load_numbers(lanes, pass.gradient, g);
#pragma unroll
  for (int i = 0; i < kStates; ++i)
    if (step.state[i] != nullptr) load_numbers(lanes, step.state[i], state[i]);
  start(lanes, y);
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

/// The arrays of a pass; its copies are without an int8 one.
template <typename E>
PassArrays<E> arrays_of(const UpdatePass& pass) {
  const Buffer copy = pass.sends_int8() ? Buffer() : pass.copy;
  return {static_cast<const E*>(pass.gradient.address()),
          static_cast<E*>(pass.x.address()),
          {{copy.address(), copy.dtype}, {pass.rounded.address(), pass.rounded.dtype}},
          pass.nonfinite,
          static_cast<Computed<E>>(pass.gradient_scale),
          pass.x.count,
          0};
}

/// The shape of a kernel over the arrays of a pass and, if added to `finder`, others.
template <typename E, template <typename> typename Step>
Shape shape_of(ShapeFinder finder, const PassArrays<E>& arrays, const Step<E>& step) {
  for (const E* state : step.state) finder.add(state, sizeof(E));
  for (const PassCopy& copy : arrays.copies) finder.add(copy.data, size_of(copy.dtype));
  return finder.add(arrays.gradient, sizeof(E)).add(arrays.x, sizeof(E)).shape();
}

/// A pass with messages of fewer bits.
template <template <typename> typename Step>
void update_with_messages(const OnDevice& here, const UpdatePass& pass, const Step<float>& step);

}  // namespace starling::kernel::cuda
