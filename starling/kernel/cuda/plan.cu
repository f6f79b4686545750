#include <utility>

#include "starling/base/error.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/tables.cuh"

namespace starling::kernel::cuda {
namespace {

/// A sum with terms that may not have arrived yet.
struct FlaggedSum {
  GivenSum given;
  const std::uint32_t* flag[kMostPlannedTerms];  // null: the term has arrived
  std::uint32_t number[kMostPlannedTerms];
  std::uint32_t required;  // bit t: of term t
  bool differences;
};

// Runs in one thread, after the stream's waits for the flags have ended, and decides once which terms all
// kernels of the sum use, whatever happens to the flags later.
template <typename T>
__global__ void latch_kernel(const __grid_constant__ FlaggedSum sum, PlannedSum<T>* plan) {
  std::uint32_t missing = 0;
  for (int t = 0; t < sum.given.count; ++t) {
    if (sum.flag[t] == nullptr) continue;
    const std::uint32_t flag = *static_cast<const volatile std::uint32_t*>(sum.flag[t]);
    if (!arrived(flag, sum.number[t])) missing |= 1U << t;
  }
  if (sum.differences)
    plan_differences(sum.given, missing, *plan);
  else if ((missing & sum.required) != 0)
    plan_nan(sum.given, *plan);
  else
    plan_sum(sum.given, missing, *plan);
}

}  // namespace

template <typename T>
SumArgument<T> plan_on(const OnDevice& here, DType dtype, std::span<const Term> terms, bool differences) {
  if (terms.size() > kMostPlannedTerms)
    throw InvalidArgument("a sum on a device has at most " + std::to_string(kMostPlannedTerms) +
                          " terms, not " + std::to_string(terms.size()));
  FlaggedSum sum{};
  sum.given.count = static_cast<int>(terms.size());
  sum.given.dtype = dtype;
  sum.differences = differences;
  bool has_flags = false, has_own = false;
  for (std::size_t t = 0; t < terms.size(); ++t) {
    if (terms[t].memory != MemoryKind::cuda)
      throw InvalidArgument("a term of a sum on a device is in " + name(terms[t].memory));
    sum.given.data[t] = terms[t].data;
    sum.given.weight[t] = terms[t].weight;
    if (terms[t].flag == nullptr) {
      if (!std::exchange(has_own, true)) sum.given.own = static_cast<int>(t);
      continue;
    }
    has_flags = true;
    if (terms[t].required) sum.required |= 1U << t;
    static_assert(sizeof(Flag) == sizeof(std::uint32_t));
    sum.flag[t] = reinterpret_cast<const std::uint32_t*>(terms[t].flag);
    sum.number[t] = terms[t].number;
    check(driver().cuStreamWaitValue32_(here.stream(), reinterpret_cast<CUdeviceptr>(terms[t].flag),
                                        terms[t].number, CU_STREAM_WAIT_VALUE_GEQ),
          "cuStreamWaitValue32");
  }
  SumArgument<T> argument{};
  if (has_flags) {
    auto* plan = reinterpret_cast<PlannedSum<T>*>(here.scratch()->plan);
    here.launch_one(latch_kernel<T>, sum, plan);
    argument.latched = plan;
  } else if (differences) {
    plan_differences(sum.given, 0, argument.given);
  } else {
    plan_sum(sum.given, 0, argument.given);
  }
  return argument;
}

template SumArgument<float> plan_on(const OnDevice&, DType, std::span<const Term>, bool);
template SumArgument<double> plan_on(const OnDevice&, DType, std::span<const Term>, bool);

void load_plan_kernels() {
  load(latch_kernel<float>);
  load(latch_kernel<double>);
}

void load_kernels() {
  load_plan_kernels();
  load_sum_kernels();
  load_map_kernels();
  load_update_kernels();
  load_message_update_kernels();
  load_measure_kernels();
  load_code_kernels();
  load_sparse_kernels();
  load_int8_kernels();
  load_matrix_kernels();
}

}  // namespace starling::kernel::cuda
