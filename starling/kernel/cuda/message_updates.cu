#include <limits>
#include <vector>

#include "starling/kernel/cuda/kernels.h"
#include "starling/kernel/cuda/phases.cuh"
#include "starling/kernel/cuda/plan.cuh"
#include "starling/kernel/cuda/runs.cuh"
#include "starling/kernel/cuda/steps.cuh"
#include "starling/kernel/cuda/tables.cuh"

// Passes of local optimizers with messages of fewer bits than x. They round as combine_around(), the pass and
// the message's encoder do one after another.

namespace starling::kernel::cuda {
namespace {

/// y <- x + the sum of weight * (theirs - own), for the thread's elements. `theirs(t, into)` loads term t,
/// from 1 on; `own` are the values of this rank's message.
template <int kV, typename Theirs>
__device__ __forceinline__ void pull(const SumArgument<float>& sum, const float (&own)[kV],
                                     const Theirs& theirs, float (&y)[kV]) {
  const int n = sum.count();
  float so_far[kV];
#pragma unroll
  for (int k = 0; k < kV; ++k) so_far[k] = RunningSum<float>(SumForm::average, 0, own[k]).so_far();
#pragma unroll 2
  for (int t = 1; t < n; ++t) {
    float next[kV];
    theirs(t, next);
    const float weight = sum.weight(t);
#pragma unroll
    for (int k = 0; k < kV; ++k) {
      RunningSum<float> running = RunningSum<float>::resumed(SumForm::average, own[k], so_far[k]);
      running.add(weight, next[k]);
      so_far[k] = running.so_far();
    }
  }
  // Subtracted, so that x without differences keeps even the sign of zero.
#pragma unroll
  for (int k = 0; k < kV; ++k) y[k] = y[k] - (n == 1 ? 0.0F : so_far[k]);
}

// This rank's own message is not read: it is x, rounded.
template <typename Message, template <typename> typename Step, Access kAccess>
__global__ void __launch_bounds__(kBlock)
    short_update_kernel(const __grid_constant__ SumArgument<float> sum, const float* x,
                        const __grid_constant__ PassArrays<float> pass,
                        const __grid_constant__ Step<float> step) {
  each_lane<kAccess, kLanesOf<float>>(pass.count, pass.shift, [&](const auto& lanes) {
    constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
    const auto start = [&](const auto& here, auto& y) {
      float own[kV];
      here.load(x, y);
#pragma unroll
      for (int k = 0; k < kV; ++k) own[k] = number_of(element_of<Message>(y[k]));
      const auto theirs = [&](int t, auto& next) { load_numbers(here, sum.template data<Message>(t), next); };
      pull(sum, own, theirs, y);
    };
    float y[kV];
    update(start, pass, step, lanes, y);
  });
}

template <typename Message, template <typename> typename Step>
const auto& short_update_kernels() {
  static constexpr auto kTable =
      by_access([](auto access) { return &short_update_kernel<Message, Step, access()>; });
  return kTable;
}

template <typename Message, template <typename> typename Step>
void update_with_short(const OnDevice& here, const UpdatePass& pass, const Step<float>& step,
                       std::span<const Term> terms) {
  const SumArgument<float> sum = plan_on<float>(here, pass.messages.dtype, terms, true);
  PassArrays<float> arrays = arrays_of<float>(pass);
  ShapeFinder finder(arrays.count, kLanesOf<float>);
  for (const Term& term : pass.messages.others) finder.add(term.data, sizeof(Message));
  const Shape shape = shape_of(finder.add(pass.from[0].data, sizeof(float)), arrays, step);
  arrays.shift = shape.shift;
  here.launch(short_update_kernels<Message, Step>()[shape.index()], shape.blocks, sum,
              static_cast<const float*>(pass.from[0].data), arrays, step);
}

constexpr int kWarp = 32;
constexpr int kWarps = kBlock / kWarp;

/// A thread's elements of a whole run that a warp works on: four words of four elements, kAtOnce in a part.
template <int kAtOnce>
struct RunWords {
  static constexpr int kParts = 4 / kAtOnce;
  std::ptrdiff_t first;

  struct Part {
    static constexpr int kLanes = 4 * kAtOnce;
    std::ptrdiff_t first;

    template <typename E>
    __device__ __forceinline__ void load(const E* from, E (&to)[kLanes]) const {
      E word[kAtOnce][4];
#pragma unroll
      for (int w = 0; w < kAtOnce; ++w) at(w).load(from, word[w]);
      memcpy(to, word, sizeof to);
    }
    template <typename E>
    __device__ __forceinline__ void store(E* to, const E (&from)[kLanes]) const {
      E word[kAtOnce][4];
      memcpy(word, from, sizeof from);
#pragma unroll
      for (int w = 0; w < kAtOnce; ++w) at(w).store(to, word[w]);
    }

   private:
    __device__ __forceinline__ Words<Access::words, 4> at(int w) const {
      return {first + w * kWarp * 4};
    }
  };
  __device__ __forceinline__ Part operator[](int part) const {
    return {first + part * kWarp * Part::kLanes};
  }
};
static_assert(4 * 4 * kWarp == kInt8Run);
/// More words at once need more registers, with which fewer warps run: measured on an H200.
template <typename Step>
inline constexpr int kWordsAtOnce = Step::kStates == 1 ? 2 : 1;

/// The messages of an int8 pass, as a kernel argument.
struct Int8Arrays {
  const float* x;
  bool averages;         // with the terms of the sum, whose first is this rank's own message
  std::size_t codes_at;  // the part's codes, in every message
  // The message that is written, or null, and the part's codes in it.
  Int8Grid* grids;
  std::int8_t* codes;
  std::size_t end, padded;  // of the block's codes, counted from the part's
  bool aligned;             // whole runs that begin with a word can be read in words
};

// Numbers as integers of the same order, with NaNs at both ends.
__device__ __forceinline__ unsigned ordered(float x) {
  const auto bits = std::bit_cast<unsigned>(x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float from_ordered(unsigned key) {
  return std::bit_cast<float>(key >> 31 != 0 ? key & 0x7FFFFFFFU : ~key);
}
// Like value_range() in kernel/quantize.h.
__device__ __forceinline__ ValueRange range_between(unsigned least, unsigned greatest) {
  constexpr unsigned kLowest = 0x007FFFFF, kHighest = 0xFF800000;  // the infinities
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (least < kLowest || greatest > kHighest) return {kNan, kNan};
  return {from_ordered(least) + 0.0F, from_ordered(greatest) + 0.0F};  // -0 + 0 is +0
}

// One warp per run.
template <template <typename> typename Step>
__global__ void __launch_bounds__(kBlock)
    int8_update_kernel(const __grid_constant__ Runs runs, const __grid_constant__ SumArgument<float> sum,
                       const __grid_constant__ Int8Arrays messages,
                       const __grid_constant__ PassArrays<float> pass,
                       const __grid_constant__ Step<float> step) {
  using OfRun = RunWords<kWordsAtOnce<Step<float>>>;
  const auto index = [] { return blockIdx.x * kWarps + threadIdx.x / kWarp; };
  const auto is_whole = [&](const Run& run) {
    return messages.aligned && run.count == kInt8Run && run.begin % 4 == 0;
  };
  // Calls body with the elements of the thread that it keeps, or with one at a time.
  const auto lanes_of = [&](const Run& run, const auto& whole, const auto& one) {
    const unsigned lane = threadIdx.x % kWarp;
    if (is_whole(run)) return whole(OfRun{static_cast<std::ptrdiff_t>(run.begin + 4 * lane)});
#pragma unroll 1
    for (std::size_t i = lane; i < run.count; i += kWarp)
      one(OneElement{static_cast<std::ptrdiff_t>(run.begin + i)});
  };
  struct Kept {
    float y[OfRun::kParts][OfRun::Part::kLanes];
  };
  OfThread<Kept> kept;
  OfThread<unsigned> least, greatest;

  each_thread_alone([&] {
    least() = ~0U, greatest() = 0;
    if (index() >= runs.count()) return;
    const Run run(runs, index());
    const auto step_with = [&](const auto& lanes, auto& next) {
      constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
      const auto values = [&](int t, auto& to) {
        const auto* message = sum.data<std::int8_t>(t);
        const Int8Grid grid = reinterpret_cast<const Int8Grid*>(message)[run.number];
        std::int8_t codes[kV];
        lanes.load(message + messages.codes_at, codes);
#pragma unroll
        for (int k = 0; k < kV; ++k) to[k] = rules::int8_value(grid, codes[k]);
      };
      const auto start = [&](const auto& here, auto& y) {
        here.load(messages.x, y);
        if (!messages.averages) return;
        float own[kV];
        values(0, own);
        pull(sum, own, values, y);
      };
      update(start, pass, step, lanes, next);
#pragma unroll
      for (int k = 0; k < kV; ++k) {
        const unsigned key = ordered(next[k]);
        least() = key < least() ? key : least();
        greatest() = key > greatest() ? key : greatest();
      }
    };
    lanes_of(
        run,
        [&](const OfRun& words) {
#pragma unroll
          for (int p = 0; p < OfRun::kParts; ++p) step_with(words[p], kept().y[p]);
        },
        [&](const OneElement& lanes) {
          float y[1];
          step_with(lanes, y);
        });
  });
  if (messages.grids == nullptr) return;
  warp_range(least, greatest);

  each_thread_alone([&] {
    if (index() >= runs.count()) return;
    const Run run(runs, index());
    const rules::Int8Scale scale = rules::int8_scale(range_between(least(), greatest()));
    if (threadIdx.x % kWarp == 0) {
      messages.grids[run.number] = scale.grid;
      if (run.begin + run.count == messages.end)
        for (std::size_t i = messages.end; i < messages.padded; ++i) messages.codes[i] = 0;
    }
    const auto send = [&](const auto& lanes, const auto& y) {
      constexpr int kV = std::decay_t<decltype(lanes)>::kLanes;
      std::int8_t codes[kV];
#pragma unroll
      for (int k = 0; k < kV; ++k) codes[k] = rules::int8_code(scale, y[k]);
      lanes.store(messages.codes, codes);
    };
    lanes_of(
        run,
        [&](const OfRun& words) {
#pragma unroll
          for (int p = 0; p < OfRun::kParts; ++p) send(words[p], kept().y[p]);
        },
        [&](const OneElement& lanes) {
          float y[1];
          lanes.load(pass.x, y);  // this thread wrote it
          send(lanes, y);
        });
  });
}

template <template <typename> typename Step>
void update_with_int8(const OnDevice& here, const UpdatePass& pass, const Step<float>& step,
                      std::span<const Term> terms) {
  const PassArrays<float> arrays = arrays_of<float>(pass);
  const PartCodes part(pass.part);
  auto* sent = pass.sends_int8() ? static_cast<std::int8_t*>(pass.copy.address()) : nullptr;
  Int8Arrays messages{static_cast<const float*>(pass.from[0].data),
                      static_cast<bool>(pass.messages),
                      part.offset,
                      reinterpret_cast<Int8Grid*>(sent),
                      sent == nullptr ? nullptr : sent + part.offset,
                      part.end,
                      part.padded,
                      false};
  SumArgument<float> sum{};
  ShapeFinder finder(arrays.count, 4);
  finder.add(messages.x, sizeof(float)).add(messages.codes, 1);
  if (pass.messages) {
    sum = plan_on<float>(here, DType::float32, terms, true);
    for (const Term& term : terms) finder.add(static_cast<const std::int8_t*>(term.data) + part.offset, 1);
  }
  const Shape shape = shape_of(finder, arrays, step);
  messages.aligned = shape.access != Access::single && shape.shift == 0;
  for_runs(pass.part, arrays.count, [&](const Runs& runs, unsigned count) {
    here.launch(int8_update_kernel<Step>, (count + kWarps - 1) / kWarps, runs, sum, messages, arrays, step);
  });
}

}  // namespace

template <template <typename> typename Step>
void update_with_messages(const OnDevice& here, const UpdatePass& pass, const Step<float>& step) {
  std::vector<Term> terms;
  if (pass.messages) {
    terms.emplace_back(pass.x.at(pass.messages.own), 1);
    terms.insert(terms.end(), pass.messages.others.begin(), pass.messages.others.end());
  }
  if (pass.has_int8())
    update_with_int8(here, pass, step, terms);
  else if (pass.messages.dtype == DType::float16)
    update_with_short<Half>(here, pass, step, terms);
  else
    update_with_short<BFloat16>(here, pass, step, terms);
}

template void update_with_messages(const OnDevice&, const UpdatePass&, const SgdStep<float>&);
template void update_with_messages(const OnDevice&, const UpdatePass&, const AdamStep<float>&);
template void update_with_messages(const OnDevice&, const UpdatePass&, const AccumAdamStep<float>&);

namespace {

template <template <typename> typename Step>
void load_kernels_of() {
  load(short_update_kernels<Half, Step>());
  load(short_update_kernels<BFloat16, Step>());
  load(int8_update_kernel<Step>);
}

}  // namespace

void load_message_update_kernels() {
  load_kernels_of<SgdStep>();
  load_kernels_of<AdamStep>();
  load_kernels_of<AccumAdamStep>();
}

}  // namespace starling::kernel::cuda
