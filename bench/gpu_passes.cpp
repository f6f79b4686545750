#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "bench/gpu_cases.h"
#include "bench/gpu_rank.h"
#include "bench/ranks.h"
#include "starling/base/random.h"
#include "starling/codec/wire_format.h"
#include "starling/kernel/code_rules.h"
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
  DType message = DType::float32;

  // Bytes per element: x, its gradient and its moments; the neighbors' messages; the sent message. The pass
  // also reads this rank's own int8 message; other own messages follow from x.
  double bytes() const {
    const double moments = adamw ? 2 : 1;
    const bool int8 = message == DType::int8;
    const double one = int8 ? 1 + static_cast<double>(sizeof(kernel::Int8Grid)) / kernel::kInt8Run
                            : static_cast<double>(size_of(message));
    return 4 * (2 + 2 * moments + 1) + one * static_cast<double>(neighbors + (slot ? 1 : 0) + (int8 ? 1 : 0));
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

// For each round, the seconds of a copy and of `body`.
template <typename Copy, typename Body>
std::vector<double> beside_a_copy(const GpuSettings& settings, const Copy& copy, const Body& body) {
  copy();
  body();
  kernel::device().synchronize();
  std::vector<double> seconds;
  for (int round = 0; round < settings.rounds; ++round) {
    seconds.push_back(device_seconds(settings.repeats(20), copy));
    seconds.push_back(device_seconds(settings.repeats(20), body));
  }
  return seconds;
}

std::vector<double> run_pass(const Pass& pass, const GpuSettings& settings) {
  use_own_stream();
  const Arithmetic& arithmetic = kernel::device().arithmetic();
  const std::size_t elements = settings.elements;
  const OwnedBuffer x = numbers_on_gpu(elements, 1), gradient = numbers_on_gpu(elements, 2),
                    m = numbers_on_gpu(elements, 3), v = numbers_on_gpu(pass.adamw ? elements : 0, 4),
                    slot = on_gpu(elements);
  const codec::WireFormatPtr format = codec::make_wire_format(name(pass.message));
  const std::size_t length = format->encoded_count(elements);
  const double weight = 1 / static_cast<double>(pass.neighbors + 1);
  std::vector<OwnedBuffer> messages;  // this rank's own first
  std::vector<Term> terms;
  for (std::size_t i = 0; i <= pass.neighbors; ++i) {
    const Buffer message = messages.emplace_back(format->dtype(), length, MemoryKind::cuda).buffer();
    format->encode(i == 0 ? x.buffer() : numbers_on_gpu(elements, 5 + i).buffer(), message);
    terms.emplace_back(ConstBuffer(message), weight);
  }
  const std::size_t ends[] = {elements};
  kernel::UpdatePass update{.from = terms, .gradient = gradient.buffer(), .x = x.buffer()};
  if (pass.slot) update.copy = {format->dtype(), slot.buffer().address(), length, MemoryKind::cuda, nullptr};
  terms[0] = {ConstBuffer(x.buffer()), weight};
  if (!format->exact()) {
    terms[0].weight = 1;
    update.from = std::span(terms).first(1);
    update.messages = {format->dtype(), messages[0].buffer().address(), std::span(terms).subspan(1)};
    update.part = {ends, 0};
  }
  const auto copy = [&] { arithmetic.copy(slot.buffer(), gradient.buffer()); };
  const auto fused = [&] {
    if (pass.adamw)
      arithmetic.adam_update(update, {.weight_decay = 0.01, .decoupled = true}, m.buffer(), v.buffer(), 10);
    else
      arithmetic.sgd_update(update, {.momentum = 0.9}, m.buffer(), false);
  };
  return beside_a_copy(settings, copy, fused);
}

/// A product of PowerSGD with a matrix of 4096 columns.
struct Product {
  void (Arithmetic::*multiply)(Buffer, ConstBuffer, ConstBuffer, std::size_t) const;
  char result;  // M, P or Q
  std::size_t rank;
};

std::vector<double> run_product(const Product& product, const GpuSettings& settings) {
  use_own_stream();
  const Arithmetic& arithmetic = kernel::device().arithmetic();
  constexpr std::size_t kColumns = 4096;
  const std::size_t rows = std::max<std::size_t>(settings.elements / kColumns, 1);
  const OwnedBuffer m = numbers_on_gpu(rows * kColumns, 1), p = numbers_on_gpu(rows * product.rank, 2),
                    q = numbers_on_gpu(kColumns * product.rank, 3), other = on_gpu(rows * kColumns);
  const Buffer out = product.result == 'M' ? m.buffer() : product.result == 'P' ? p.buffer() : q.buffer();
  const Buffer first = product.result == 'M' ? p.buffer() : m.buffer();
  const Buffer second = product.result == 'Q' ? p.buffer() : q.buffer();
  const auto copy = [&] { arithmetic.copy(other.buffer(), m.buffer()); };
  return beside_a_copy(settings, copy,
                       [&] { (arithmetic.*product.multiply)(out, first, second, product.rank); });
}

// Runs `run` in a process of its own; `bytes` are those of its pass, per element.
template <typename Run>
std::vector<GpuRound> measure_beside_a_copy(const GpuSettings& settings, double bytes, const Run& run) {
  const auto most = static_cast<std::size_t>(2 * settings.rounds);
  const std::vector<double> seconds =
      run_ranks(1, most, kGpuLimit, [&](int, const auto&) { return run(); }).front();
  constexpr double kCopyBytes = 8;
  std::vector<GpuRound> rounds;
  for (std::size_t i = 0; i < most; i += 2)
    rounds.push_back({seconds[i + 1], bytes / seconds[i + 1] / (kCopyBytes / seconds[i])});
  return rounds;
}

GpuCase pass_case(const std::string& name, const Pass& pass) {
  GpuCase made{.name = name, .of = "a copy's rate", .bar = 0.93, .least = true};
  made.measure = [pass](const GpuSettings& settings) {
    return measure_beside_a_copy(settings, pass.bytes(), [&] { return run_pass(pass, settings); });
  };
  return made;
}

GpuCase product_case(const std::string& name, const Product& product) {
  GpuCase made{.name = fmt::format("{}, rank {}", name, product.rank), .of = "a copy's rate", .least = true};
  made.bar = product.rank > 2 ? 0.5 : 0.8;  // of rank 8, the operations take as long as the bytes
  made.measure = [product](const GpuSettings& settings) {
    return measure_beside_a_copy(settings, sizeof(float), [&] { return run_product(product, settings); });
  };
  return made;
}

}  // namespace

std::vector<GpuCase> gpu_pass_cases() {
  std::vector<GpuCase> all = {
      pass_case("momentum alone", {.slot = false}),
      pass_case("average of 1 + momentum", {.neighbors = 1}),
      pass_case("average of 3 + momentum", {.neighbors = 3}),
      pass_case("average of 6 + momentum", {.neighbors = 6}),
      pass_case("average of 1 + momentum, bfloat16 messages", {.neighbors = 1, .message = DType::bfloat16}),
      pass_case("average of 1 + momentum, int8 messages", {.neighbors = 1, .message = DType::int8}),
      pass_case("average of 1 + AdamW", {.neighbors = 1, .adamw = true}),
      pass_case("average of 1 + AdamW, int8 messages",
                {.neighbors = 1, .adamw = true, .message = DType::int8})};
  for (const std::size_t rank : {2, 8}) {
    all.push_back(product_case("P = M Q", {&Arithmetic::multiply, 'P', rank}));
    all.push_back(product_case("Q = M^T P", {&Arithmetic::multiply_transposed, 'Q', rank}));
    all.push_back(product_case("M = P Q^T", {&Arithmetic::multiply_factors, 'M', rank}));
  }
  return all;
}

}  // namespace starling::bench
