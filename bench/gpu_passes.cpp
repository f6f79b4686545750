#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "bench/gpu_cases.h"
#include "bench/gpu_rank.h"
#include "bench/ranks.h"
#include "starling/base/random.h"
#include "starling/kernel/update.h"

// One process's passes over device memory, beside a copy of as many bytes.

namespace starling::bench {
namespace {

using kernel::Arithmetic;
using kernel::OwnedBuffer;
using kernel::Term;

/// Different numbers above zero: the device divides zeros, and takes their roots, more slowly.
OwnedBuffer numbers_on_gpu(std::size_t elements, std::uint64_t seed) {
  OwnedBuffer made = on_gpu(elements);
  std::vector<float> part(std::min(elements, std::size_t{1} << 20));
  Random random(seed, 0, 0);
  for (float& one : part) one = static_cast<float>(0.01 + random.uniform());
  for (std::size_t begin = 0; begin < elements; begin += part.size()) {
    const Buffer to = made.buffer().part(begin, std::min(part.size(), elements - begin));
    kernel::device().copy_to_device(to.address(), part.data(), to.bytes());
  }
  kernel::device().synchronize();
  return made;
}

struct Pass {
  std::size_t neighbors = 0;
  bool adamw = false;
  bool slot = true;  // the result is also written to outgoing memory

  // Bytes per element: x, its gradient and its moments; the neighbors' messages; the sent message.
  double bytes() const {
    const double moments = adamw ? 2 : 1;
    return 4 * (2 + 2 * moments + 1 + static_cast<double>(neighbors) + (slot ? 1 : 0));
  }
};

// Seconds per call, by the device's clock.
template <typename Body>
double device_seconds(int repeats, const Body& body) {
  kernel::Device& device = kernel::device();
  const kernel::Device::Moment begin = device.mark_moment();
  for (int i = 0; i < repeats; ++i) body();
  return device.seconds_between(begin, device.mark_moment()) / repeats;
}

// For each round, the seconds of a copy and of the pass.
std::vector<double> run_pass(const Pass& pass, const GpuSettings& settings) {
  use_own_stream();
  const Arithmetic& arithmetic = kernel::device().arithmetic();
  const std::size_t elements = settings.elements;
  const OwnedBuffer x = numbers_on_gpu(elements, 1), gradient = numbers_on_gpu(elements, 2),
                    m = numbers_on_gpu(elements, 3), v = numbers_on_gpu(pass.adamw ? elements : 0, 4),
                    slot = on_gpu(elements);
  std::vector<OwnedBuffer> heard;
  const double weight = 1 / static_cast<double>(pass.neighbors + 1);
  std::vector<Term> terms = {{ConstBuffer(x.buffer()), weight}};
  for (std::size_t i = 0; i < pass.neighbors; ++i)
    terms.emplace_back(ConstBuffer(heard.emplace_back(numbers_on_gpu(elements, 5 + i)).buffer()), weight);
  kernel::UpdatePass update{.from = terms, .gradient = gradient.buffer(), .x = x.buffer()};
  if (pass.slot) update.copy = slot.buffer();
  const auto copy = [&] { arithmetic.copy(slot.buffer(), gradient.buffer()); };
  const auto fused = [&] {
    if (pass.adamw)
      arithmetic.adam_update(update, {.weight_decay = 0.01, .decoupled = true}, m.buffer(), v.buffer(), 10);
    else
      arithmetic.sgd_update(update, {.momentum = 0.9}, m.buffer(), false);
  };
  copy();
  fused();
  kernel::device().synchronize();
  std::vector<double> seconds;
  for (int round = 0; round < settings.rounds; ++round) {
    seconds.push_back(device_seconds(settings.repeats(20), copy));
    seconds.push_back(device_seconds(settings.repeats(20), fused));
  }
  return seconds;
}

std::vector<GpuRound> measure_pass(const Pass& pass, const GpuSettings& settings) {
  const auto most = static_cast<std::size_t>(2 * settings.rounds);
  const std::vector<double> seconds =
      run_ranks(1, most, kGpuLimit, [&](int, const auto&) { return run_pass(pass, settings); }).front();
  constexpr double kCopyBytes = 8;
  std::vector<GpuRound> rounds;
  for (std::size_t i = 0; i < most; i += 2)
    rounds.push_back({seconds[i + 1], pass.bytes() / seconds[i + 1] / (kCopyBytes / seconds[i])});
  return rounds;
}

GpuCase pass_case(const std::string& name, const Pass& pass) {
  GpuCase made{.name = name, .of = "a copy's rate", .bar = 0.93, .least = true};
  made.measure = [pass](const GpuSettings& settings) { return measure_pass(pass, settings); };
  return made;
}

}  // namespace

std::vector<GpuCase> gpu_pass_cases() {
  return {pass_case("momentum alone", {.slot = false}),
          pass_case("average of 1 + momentum", {.neighbors = 1}),
          pass_case("average of 3 + momentum", {.neighbors = 3}),
          pass_case("average of 6 + momentum", {.neighbors = 6}),
          pass_case("average of 1 + AdamW", {.neighbors = 1, .adamw = true})};
}

}  // namespace starling::bench
