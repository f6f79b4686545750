#include "starling/kernel/int8_messages.h"

#include <cstring>

#include "starling/kernel/await_terms.h"
#include "starling/kernel/codec_kernels.h"
#include "starling/kernel/staged.h"

namespace starling::kernel {
namespace {

void host_encode(const Int8Part& part, ConstBuffer in, Buffer message) {
  const Int8Runs runs(part.ends);
  for_int8_runs(part, in.count, [&](std::size_t run, std::size_t begin, std::size_t length) {
    runs.write(message.host_data(), run, part.begin + begin, in.host<float>() + begin, length);
  });
}

void host_decode(const Int8Part& part, ConstBuffer message, Buffer out) {
  const Int8Runs runs(part.ends);
  auto* values = out.host<float>();
  for_int8_runs(part, out.count, [&](std::size_t run, std::size_t begin, std::size_t length) {
    const Int8Run one = runs.read(message.host_data(), run, part.begin + begin);
    for (std::size_t i = 0; i < length; ++i)
      values[begin + i] = static_cast<float>(one.codes[i]) * one.grid.step + one.grid.middle;
  });
}

void host_combine_around(const Int8Part& part, Buffer out, ConstBuffer x, ConstBuffer own,
                         std::span<const Term> others) {
  check_on_host(others);
  const Int8Runs runs(part.ends);
  const auto* from = static_cast<const float*>(x.host_data());
  std::vector<Int8Term> terms(others.size());
  for_int8_runs(part, out.count, [&](std::size_t run, std::size_t begin, std::size_t length) {
    for (std::size_t t = 0; t < terms.size(); ++t)
      terms[t] = {runs.read(others[t].data, run, part.begin + begin), others[t].weight};
    combine_around_int8(out.host<float>() + begin, from == nullptr ? from : from + begin,
                        runs.read(own.host_data(), run, part.begin + begin), terms, length);
  });
}

}  // namespace

Int8Run Int8Runs::read(const void* message, std::size_t run, std::size_t element) const {
  const auto* bytes = static_cast<const std::byte*>(message);
  Int8Run result{reinterpret_cast<const std::int8_t*>(bytes + codes_ + element), {}};
  std::memcpy(&result.grid, bytes + run * sizeof(Int8Grid), sizeof(Int8Grid));
  return result;
}

void Int8Runs::write(void* message, std::size_t run, std::size_t element, const float* in,
                     std::size_t length) const {
  auto* bytes = static_cast<std::byte*>(message);
  auto* codes = reinterpret_cast<std::int8_t*>(bytes + codes_);
  const Int8Grid grid = quantize_int8(in, length, codes + element);
  std::memcpy(bytes + run * sizeof(grid), &grid, sizeof(grid));
  if (element + length < count_) return;
  for (std::size_t i = count_; i % 8 != 0; ++i) codes[i] = 0;
}

void encode_int8(const Int8Part& part, ConstBuffer in, Buffer message) {
  if (const auto* kernels = codec_kernels_in(in.memory)) return kernels->encode_int8(part, in, message);
  const Staged values(in);
  const bool whole = part.begin == 0 && in.count == part.ends.back();
  const Staged bytes(message, MemoryKind::host, !whole);
  host_encode(part, values.buffer(), bytes.buffer());
  bytes.write_back();
}

void decode_int8(const Int8Part& part, ConstBuffer message, Buffer out) {
  if (const auto* kernels = codec_kernels_in(out.memory)) return kernels->decode_int8(part, message, out);
  const Staged values(out, MemoryKind::host, false);
  host_decode(part, Staged(message).buffer(), values.buffer());
  values.write_back();
}

void combine_around_int8(const Int8Part& part, Buffer out, ConstBuffer x, ConstBuffer own,
                         std::span<const Term> others) {
  if (const auto* kernels = codec_kernels_in(out.memory))
    return kernels->combine_around_int8(part, out, x, {own, 1}, others);
  if (out.on_host()) return host_combine_around(part, out, x, own, others);
  std::vector<Staged<const void>> copies;
  std::vector<Term> terms = await_terms(others);
  for (Term& term : terms) term = {copies.emplace_back(ConstBuffer(own.at(term.data))).buffer(), term.weight};
  const Staged sum(out, MemoryKind::host, false);
  const Staged values(x);
  host_combine_around(part, sum.buffer(), values.buffer(), Staged(own).buffer(), terms);
  sum.write_back();
}

}  // namespace starling::kernel
