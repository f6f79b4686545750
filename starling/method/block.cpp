#include "starling/method/block.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/convert.h"

namespace starling {

double read_number(ConstBlock block) {
  if (block.dtype == DType::float64) return *static_cast<const double*>(block.data);
  float value = 0;
  convert(block.dtype, block.data, DType::float32, &value, 1);
  return value;
}

void write_number(MutableBlock block, double value) {
  if (block.dtype == DType::float64) {
    *static_cast<double*>(block.data) = value;
    return;
  }
  const auto rounded = static_cast<float>(value);
  convert(DType::float32, &rounded, block.dtype, block.data, 1);
}

Block::Block(std::string name_, MutableBlock x_, MutableBlock gradient_, std::vector<Segment> segments_,
             UpdatePtr update_, ChannelPtr channel_)
    : name(std::move(name_)),
      x(x_),
      gradient(gradient_),
      segments(std::move(segments_)),
      local_update(std::move(update_)),
      channel(std::move(channel_)) {}

void Block::apply(std::span<const Term> from, const void* direction, double scale, MutableBlock out,
                  void* copy) {
  bool nonfinite = false;
  const Stride stride{from, direction, scale, out.data, copy, out.count, &nonfinite};
  if (skipped)
    copy_through(dtype(), stride);
  else
    local_update->apply(stride, segments);
  if (nonfinite && on_nonfinite) on_nonfinite(out);
}

void Block::update_along(ConstBlock direction, double scale) {
  const Term own{x.data, 1};
  apply({&own, 1}, direction.data, scale, x, nullptr);
}

void Block::update_as(MutableBlock out) {
  const Term own{x.data, 1};
  apply({&own, 1}, gradient.data, gradient_scale, out, nullptr);
}

void Block::activate() {
  for (Segment& segment : segments) segment.active = true;
}

void Block::mix(std::initializer_list<MutableBlock> vectors) {
  channel->mix(pieces_of(std::vector<MutableBlock>(vectors)));
}

void Block::mix(std::initializer_list<MutableBlock> averaged, std::initializer_list<MutableBlock> summed) {
  std::vector<MutableBlock> all(averaged);
  all.insert(all.end(), summed);
  Pieces pieces = pieces_of(all);
  for (std::size_t i = averaged.size(); i < pieces.size(); ++i) pieces[i].if_lost = IfLost::returned;
  channel->mix(std::move(pieces));
}

void Block::update_and_mix() {
  void* next = channel->outgoing(x.count * size_of(dtype()));
  if (next == nullptr) {
    update();
    mix(x);
    return;
  }
  update_as({dtype(), next, x.count});
  channel->mix_outgoing(x);
}

void Block::update_from_shared() {
  const std::span<const Term> from = channel->shared(x);
  void* next = channel->outgoing(x.count * size_of(dtype()));
  apply(from, gradient.data, gradient_scale, x, next);
  channel->shared_done();
  if (next != nullptr) channel->keep_for_share();
}

Block::State& Block::find_state(const std::string& key, DType dtype, std::size_t count) {
  const auto found =
      std::find_if(states_.begin(), states_.end(), [&](const State& s) { return s.key == key; });
  if (found != states_.end()) return *found;
  State& made = states_.emplace_back();
  made.key = key;
  made.bytes.resize(count * size_of(dtype));
  made.block = {dtype, made.bytes.data(), count};
  return made;
}

MutableBlock Block::state(const std::string& key) {
  return find_state(key, dtype(), count()).block;
}

MutableBlock Block::make_state(const std::string& key, DType type, std::size_t elements) {
  const MutableBlock made = find_state(key, type, elements).block;
  if (made.dtype != type || made.count != elements)
    throw InvalidArgument(fmt::format("{}: {} has {} x {}, not {} x {}", name, key, made.count,
                                      starling::name(made.dtype), elements, starling::name(type)));
  return made;
}

MutableBlock Block::scalar(const std::string& key) {
  return find_state(key, dtype(), 1).block;
}

std::span<double> Block::numbers(const std::string& key, std::size_t count, double initial) {
  const std::size_t before = states_.size();
  const State& state = find_state(key, DType::float64, count);
  const std::span<double> values(static_cast<double*>(state.block.data), count);
  if (states_.size() > before) std::fill(values.begin(), values.end(), initial);
  return values;
}

std::vector<NamedState> Block::states() {
  std::vector<NamedState> all;
  for (const State& state : states_) all.push_back({state.key, state.block});
  return all;
}

}  // namespace starling
