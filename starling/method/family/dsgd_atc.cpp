#include <algorithm>

#include "starling/kernel/copy.h"
#include "starling/method/family/dsgd.h"
#include "starling/method/family/list.h"

namespace starling::methods {
namespace {

// CECA: what the gradient of a round is taken at is what the round sends, a where its digit is above 0.
bool sends_a(const Exchange& exchange) {
  for (const Destination& destination : exchange.destinations)
    if (destination.lane == Lane::a) return true;
  return exchange.destinations.empty();
}

void swap_blocks(MutableBlock left, MutableBlock right) {
  auto* a = static_cast<std::byte*>(left.data);
  std::swap_ranges(a, a + left.count * size_of(left.dtype), static_cast<std::byte*>(right.data));
}

}  // namespace

void DsgdAtc::check(const Schedule& schedule) const {
  if (schedule.mixing() != Mixing::two_block) Method::check(schedule);
}

void DsgdAtc::adapt(Block& block) {
  if (block.channel->schedule()->mixing() == Mixing::two_block)
    adapt_two(block);
  else
    block.update_and_mix();
}

// x holds the block that was evaluated, `other` the other one; numbers: has begun, x is b.
void DsgdAtc::adapt_two(Block& block) {
  const MutableBlock other = block.state("other");
  const auto flags = block.numbers("ceca", 2);
  const std::size_t bytes = block.count() * size_of(block.dtype());
  if (flags[0] == 0) {
    copy_bytes(other.data, block.x.data, bytes);
    flags[0] = 1;
  }
  // other += U, as the difference that the update made to x.
  const MutableBlock before = block.state("before");
  copy_bytes(before.data, block.x.data, bytes);
  block.update();
  const Term terms[] = {{other.data, 1}, {block.x.data, 1}, {before.data, -1}};
  starling::combine(block.dtype(), other.data, terms, block.count());
  const bool x_is_b = flags[1] != 0;
  block.mix({x_is_b ? other : block.x, x_is_b ? block.x : other});
}

void DsgdAtc::combine(Block& block) {
  if (block.channel->schedule()->mixing() != Mixing::two_block) return;
  const auto flags = block.numbers("ceca", 2);
  const bool evaluate_b = !sends_a(block.channel->next());
  if (evaluate_b != (flags[1] != 0)) {
    swap_blocks(block.x, block.state("other"));
    flags[1] = evaluate_b ? 1 : 0;
  }
}

void DsgdAtc::x_replaced(Block& block) {
  if (block.channel->schedule()->mixing() != Mixing::two_block) return;
  copy_bytes(block.state("other").data, block.x.data, block.count() * size_of(block.dtype()));
}

MutableBlock DsgdAtc::model(Block& block) const {
  const SchedulePtr schedule = block.channel->schedule();
  const bool x_is_b = schedule->mixing() == Mixing::two_block && block.numbers("ceca", 2)[1] != 0;
  return x_is_b ? block.state("other") : block.x;
}

MethodFamily dsgd_atc() {
  return {"dsgd-atc",
          "adapt, then combine: neighbours' updated models are averaged; the only one for ceca",
          {},
          [](const Parameters&) { return std::make_shared<DsgdAtc>(); }};
}

}  // namespace starling::methods
