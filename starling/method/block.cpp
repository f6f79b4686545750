#include "starling/method/block.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/staged.h"

namespace starling::method {

double read_number(ConstBuffer block) {
  const kernel::Staged number(block);
  if (block.dtype == DType::float64) return *number.buffer().host<double>();
  float value = 0;
  convert(number.buffer(), {DType::float32, &value, 1});
  return value;
}

void write_number(Buffer block, double value) {
  write_numbers(block, {&value, 1});
}

void write_numbers(Buffer block, std::span<const double> values) {
  const kernel::Staged numbers(block, MemoryKind::host, false);
  const std::vector<float> rounded(values.begin(), values.end());
  if (block.dtype == DType::float64)
    std::copy(values.begin(), values.end(), numbers.buffer().host<double>());
  else
    convert({DType::float32, rounded.data(), rounded.size()}, numbers.buffer());
  numbers.write_back();
}

Block::Block(std::string name_, Buffer x_, Buffer gradient_, std::vector<Segment> segments_,
             UpdatePtr update_, ChannelPtr channel_)
    : name(std::move(name_)),
      x(x_),
      gradient(gradient_),
      segments(std::move(segments_)),
      local_update(std::move(update_)),
      channel(std::move(channel_)) {}

void Block::apply(UpdatePass pass) {
  bool nonfinite = false;
  pass.nonfinite = x.on_host() ? &nonfinite : device_mark();
  pass.part.ends = parameter_ends();
  const auto run = [&] { skipped ? copy_through(pass) : local_update->apply(pass, segments); };
  if (x.on_host())
    run();
  else
    channel->record_update(name, step, run);
  if (nonfinite && on_nonfinite) on_nonfinite(pass.x);
}

// Where the parameters end that int8 messages scale separately.
std::span<const std::size_t> Block::parameter_ends() const {
  const NeighborChannel* part = channel->neighbors();
  const std::span<const std::size_t> ends = part == nullptr ? std::span<const std::size_t>() : part->ends();
  return !ends.empty() && ends.back() == x.count ? ends : std::span(&x.count, 1);
}

// Whether a pass can read and write this block's messages, which may be of int8: these have whole runs.
bool Block::passes_messages() const {
  if (neighbors().outgoing_form(x).dtype != DType::int8) return true;
  return std::ranges::all_of(segments, [&](const Segment& segment) {
    return kernel::begins_int8_run(parameter_ends(), segment.begin);
  });
}

// Memory for the message of x that a pass writes; empty if it cannot.
Outgoing Block::outgoing_memory() const {
  return passes_messages() ? neighbors().outgoing(x) : Outgoing();
}
Buffer Block::message_in(const Outgoing& memory) const {
  const ConstBuffer form = neighbors().outgoing_form(x);
  return memory.buffer(form.dtype, form.count);
}

// The mark for the next pass on a device. The pass may end after the call, so its result is reported with the
// next pass.
bool* Block::device_mark() {
  if (!on_nonfinite) return nullptr;
  if (!mark_) mark_ = arithmetic().make_mark();
  if (std::atomic_ref<bool>(*mark_).exchange(false)) on_nonfinite(x);
  return mark_.get();
}

void Block::update_along(ConstBuffer direction, double scale) {
  const Term own{x, 1};
  apply({{&own, 1}, direction, scale, x});
}

void Block::update_as(Buffer out) {
  const Term own{x, 1};
  apply({{&own, 1}, gradient, gradient_scale, out});
}

void Block::activate() {
  for (Segment& segment : segments) segment.active = true;
}

NeighborChannel& Block::neighbors() const {
  if (NeighborChannel* part = channel->neighbors()) return *part;
  throw InvalidArgument(name +
                        ": this block has no neighbors; a method that exchanges with neighbors needs " +
                        "a schedule (needs_schedule()) and no relay rule");
}

OneSidedChannel& Block::one_sided() const {
  if (OneSidedChannel* part = channel->one_sided()) return *part;
  throw InvalidArgument(name + ": this block has no windows; a method that uses them needs a schedule " +
                        "and declares it (requirements().one_sided)");
}

RelayChannel& Block::relay() const {
  if (RelayChannel* part = channel->relay()) return *part;
  throw InvalidArgument(name +
                        ": this block has no relay; a method that relays returns a rule (relay_rule())");
}

void Block::mix(std::initializer_list<Buffer> vectors) {
  neighbors().mix(pieces_of(std::vector<Buffer>(vectors)));
}

void Block::mix(std::initializer_list<Buffer> averaged, std::initializer_list<Buffer> summed) {
  std::vector<Buffer> all(averaged);
  all.insert(all.end(), summed);
  Pieces pieces = pieces_of(all);
  for (std::size_t i = averaged.size(); i < pieces.size(); ++i) pieces[i].if_lost = IfLost::returned;
  neighbors().mix(std::move(pieces));
}

void Block::update_and_mix() {
  Outgoing next = outgoing_memory();
  if (!next) {
    update();
    mix(x);
    return;
  }
  const Buffer written = message_in(next);
  const Term own{x, 1};
  if (written.dtype == dtype())
    update_as(written);
  else
    apply({{&own, 1}, gradient, gradient_scale, x, written});
  neighbors().mix(std::move(next), x);
}

void Block::share() {
  shared_ = {};
  shared_ = neighbors().share(x, std::move(next_));
}

void Block::share(ConstBuffer v) {
  shared_ = {};
  shared_ = neighbors().share(v, {});
}

void Block::update_from_shared() {
  const SharedExchange shared = take_shared();
  Outgoing next = outgoing_memory();
  const Term own{x, 1};
  UpdatePass pass{{&own, 1}, gradient, gradient_scale, x, message_in(next)};
  if (passes_messages()) pass.messages = shared.messages();
  if (!pass.messages) pass.from = shared.terms(x);
  pass.rounded = rounded;
  apply(pass);
  wrote_rounded = rounded.address() != nullptr;
  next_ = std::move(next);
}

void Block::drop_shared() {
  shared_ = {};
  next_ = {};
}

Block::State& Block::find_state(const std::string& key, DType dtype, std::size_t count, MemoryKind memory) {
  const auto found =
      std::find_if(states_.begin(), states_.end(), [&](const State& s) { return s.key == key; });
  if (found == states_.end()) return states_.emplace_back(State{key, OwnedBuffer(dtype, count, memory)});
  if (std::exchange(found->restored, false) && memory != MemoryKind::host) {
    const OwnedBuffer saved = found->memory;
    found->memory = OwnedBuffer(saved.buffer().dtype, saved.buffer().count, memory);
    kernel::transfer(found->memory.buffer(), saved.buffer());
  }
  return *found;
}

Buffer Block::restore_state(const std::string& key, DType type, std::size_t elements) {
  return states_.emplace_back(State{key, OwnedBuffer(type, elements), true}).memory.buffer();
}

Buffer Block::state(const std::string& key) {
  return find_state(key, dtype(), count(), x.memory).memory.buffer();
}

Buffer Block::checked_state(const std::string& key, DType type, std::size_t elements, MemoryKind memory) {
  const Buffer made = find_state(key, type, elements, memory).memory.buffer();
  if (made.dtype != type || made.count != elements)
    throw InvalidArgument(fmt::format("{}: {} has {} x {}, not {} x {}", name, key, made.count,
                                      starling::name(made.dtype), elements, starling::name(type)));
  return made;
}

Buffer Block::make_state(const std::string& key, DType type, std::size_t elements) {
  return checked_state(key, type, elements, x.memory);
}

Buffer Block::host_state(const std::string& key, DType type, std::size_t elements) {
  return checked_state(key, type, elements, MemoryKind::host);
}

Buffer Block::scalar(const std::string& key) {
  return find_state(key, dtype(), 1, x.memory).memory.buffer();
}

Buffer Block::wide_scalar(const std::string& key, double initial) {
  const std::size_t before = states_.size();
  const Buffer number = find_state(key, DType::float64, 1, x.memory).memory.buffer();
  if (states_.size() > before) write_number(number, initial);
  return number;
}

std::span<double> Block::numbers(const std::string& key, std::size_t count, double initial) {
  const std::size_t before = states_.size();
  const State& state = find_state(key, DType::float64, count, MemoryKind::host);
  const std::span<double> values(state.memory.buffer().host<double>(), count);
  if (states_.size() > before) std::fill(values.begin(), values.end(), initial);
  return values;
}

std::vector<NamedState> Block::states() {
  std::vector<NamedState> all;
  for (const State& state : states_) all.push_back({state.key, state.memory.buffer()});
  return all;
}

}  // namespace starling::method
