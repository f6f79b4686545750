#pragma once

#include "starling/kernel/cuda/elements.cuh"
#include "starling/kernel/cuda/on_device.h"
#include "starling/kernel/sum_plan.h"

// Weighted sums in kernels: the plan comes from the host or, if terms have flags, from the latch kernel.

namespace starling::kernel::cuda {

/// A sum, as a kernel argument.
template <typename T>
struct SumArgument {
  PlannedSum<T> given;
  const PlannedSum<T>* latched;  // in device memory; null: use `given`

  __device__ __forceinline__ int count() const { return latched != nullptr ? latched->count : given.count; }
  __device__ __forceinline__ SumForm form() const { return latched != nullptr ? latched->form : given.form; }
  __device__ __forceinline__ T weight(int t) const {
    return latched != nullptr ? latched->weight[t] : given.weight[t];
  }
  template <typename E>
  __device__ __forceinline__ const E* data(int t) const {
    return static_cast<const E*>(latched != nullptr ? latched->data[t] : given.data[t]);
  }
};
static_assert(sizeof(PlannedSum<double>) <= sizeof(Scratch::plan));

/// Plans the sum of `terms`, elements of `dtype`. If terms have flags, the stream waits for them, and a
/// kernel then checks which terms have arrived. With `differences` it is the plan of combine_around(), whose
/// first term is the center. Throws InvalidArgument above kMostPlannedTerms terms.
template <typename T>
SumArgument<T> plan_on(const OnDevice& here, DType dtype, std::span<const Term> terms,
                       bool differences = false);

/// kTerms of a kernel's sum; for single elements a loop, which is less code where speed does not matter.
constexpr int terms_at(int lanes, int terms) {
  return lanes == 1 && terms > 1 ? 0 : terms;
}

/// Adds up the terms of a sum, at least one, for the thread's elements; `first` are those of the first term.
/// kTerms is at least the plan's count, or 0 for a loop.
template <typename E, int kTerms, typename T, typename Elements, int kV>
__device__ __forceinline__ void add_up(const SumArgument<T>& sum, const Elements& lanes, T (&first)[kV],
                                       T (&so_far)[kV]) {
  const int n = sum.count();
  const SumForm form = sum.form();
  if constexpr (kTerms > 0) {
    E x[kTerms][kV];  // all loads are issued before the first value is needed
#pragma unroll
    for (int t = 0; t < kTerms; ++t)
      if (t == 0 || t < n) lanes.load(sum.template data<E>(t), x[t]);
#pragma unroll
    for (int k = 0; k < kV; ++k) {
      first[k] = number_of(x[0][k]);
      RunningSum<T> running(form, sum.weight(0), first[k]);
#pragma unroll
      for (int t = 1; t < kTerms; ++t)
        if (t < n) running.add(sum.weight(t), number_of(x[t][k]));
      so_far[k] = running.so_far();
    }
  } else {
    E x[kV];
    lanes.load(sum.template data<E>(0), x);
#pragma unroll
    for (int k = 0; k < kV; ++k) {
      first[k] = number_of(x[k]);
      so_far[k] = RunningSum<T>(form, sum.weight(0), first[k]).so_far();
    }
#pragma unroll 4
    for (int t = 1; t < n; ++t) {
      E next[kV];
      lanes.load(sum.template data<E>(t), next);
      const T weight = sum.weight(t);
#pragma unroll
      for (int k = 0; k < kV; ++k) {
        RunningSum<T> running = RunningSum<T>::resumed(form, first[k], so_far[k]);
        running.add(weight, number_of(next[k]));
        so_far[k] = running.so_far();
      }
    }
  }
}

/// y <- the sum, for the thread's elements.
template <typename E, int kTerms, typename T, typename Elements, int kV>
__device__ __forceinline__ void sum_up(const SumArgument<T>& sum, const Elements& lanes, T (&y)[kV]) {
  const int n = sum.count();
  if (n == 0) {  // all terms were lost
#pragma unroll
    for (int k = 0; k < kV; ++k) y[k] = T(0);
    return;
  }
  T first[kV];
  add_up<E, kTerms>(sum, lanes, first, y);
#pragma unroll
  for (int k = 0; k < kV; ++k) y[k] = RunningSum<T>::resumed(sum.form(), first[k], y[k]).result(n);
}

}  // namespace starling::kernel::cuda
