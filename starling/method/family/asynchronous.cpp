#include "starling/method/family/asynchronous.h"

#include <utility>

#include "starling/topology/exchange.h"

namespace starling::method::family {

void Asynchronous::barrier(Block& block) {
  const Buffer token = block.scalar("meeting");
  write_number(token, 0);
  block.collective().reduce({Block::in_place(token)}, Reduction::sum);
  block.channel->wait();
}

namespace {

// The last step whose incoming messages have not been collected; -1: none.
double& made(Block& block) {
  return block.numbers("made", 1, -1)[0];
}

}  // namespace

void Asynchronous::begin(Block& block) {
  prepare(block);
  if (const double step = std::exchange(made(block), -1); step >= 0) collect(block, static_cast<Step>(step));
}

void Asynchronous::settle(Block& block) {
  barrier(block);
  if (const double step = std::exchange(made(block), -1); step >= 0) collect(block, static_cast<Step>(step));
  barrier(block);
}

void Asynchronous::publish_step(Block& block) {
  made(block) = static_cast<double>(block.step);
  block.one_sided().set_progress(block.step + 1);
}

void Asynchronous::await_slower_ranks(Block& block) const {
  if (staleness_) block.one_sided().await_progress(block.step + 1 - *staleness_);
}

Exchange Asynchronous::round_of(const Block& block, Step step) {
  return flattened(block.channel->schedule()->exchange(step, block.channel->rank()), block.channel->rank());
}

MethodRequirements Asynchronous::requirements() const {
  return {.schedule = ScheduleKind::known_neighbors,
          .exact_messages_because = "windows hold blocks as they are",
          .one_sided = true,
          .asynchronous = true};
}

Parameter staleness_parameter() {
  return {"staleness", "auto", "most steps that a rank may be ahead of its sources; auto: no limit"};
}

std::optional<Step> staleness_of(const Parameters& given) {
  return given.optional_integer("staleness", 0, 1'000'000'000);
}

}  // namespace starling::method::family
