#pragma once

#include <utility>
#include <vector>

#include "bench/work.h"
#include "starling/flock/flock.h"

namespace starling::tool {

template <typename F>
concept ZeroCopyFlock = requires(F& flock) {
  flock.template outgoing<float>(std::size_t{1});
};

/// One step of a program that writes its next values straight into outgoing memory. What it computes is not
/// communication, so the benchmark leaves the memory as the step before left it, except for one element a
/// page.
template <typename F>
void zero_copy_step(F& flock, std::vector<float>& out) {
  if constexpr (ZeroCopyFlock<F>) {
    constexpr std::size_t kPage = 4096 / sizeof(float);
    auto slot = flock.template outgoing<float>(out.size());
    for (std::size_t i = 0; i < out.size(); i += kPage) slot.data()[i] = 1;
    flock.neighbor_allreduce(std::move(slot), out);
  }
}

/// The first step writes everything, to see that the result is right; then the time is taken.
template <typename F>
std::vector<double> time_zero_copy(F& flock, const bench::Work& work) {
  std::vector<float> out(work.elements);
  if constexpr (ZeroCopyFlock<F>) {
    auto slot = flock.template outgoing<float>(work.elements);
    std::fill(slot.begin(), slot.end(), bench::start_value(flock.rank()));
    flock.neighbor_allreduce(std::move(slot), out);
    bench::check_first(work, flock.rank(), out);
  }
  return bench::time_batches(
      work, [&] { flock.barrier(); }, [&] { zero_copy_step(flock, out); });
}

}  // namespace starling::tool
