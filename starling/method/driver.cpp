#include "starling/method/driver.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"
#include "starling/topology/registry.h"

namespace starling {

Driver::Driver(MethodPtr method, std::vector<std::unique_ptr<Block>> blocks)
    : method_(std::move(method)), blocks_(std::move(blocks)), complete_(blocks_.size()) {}

void Driver::set_step(Step step) {
  step_ = step;
  for (const auto& block : blocks_) block->channel->set_round(step);
  parameters_changed();
}

void Driver::parameters_changed() {
  for (const auto& block : blocks_) block->channel->forget_kept();
}

void Driver::begin() {
  if (begun_) return;
  begun_ = true;
  for (; ahead_ < blocks_.size(); ++ahead_) begin_block(*blocks_[ahead_], step_);
  ahead_ = 0;
}

void Driver::begin_block(Block& block, Step step) {
  block.step = step;
  method_->begin(block);
}

bool Driver::withdraw_gradients() {
  if (adapted_ > 0 || (told_ > 0 && method_->sends_gradients())) return false;
  complete_.assign(blocks_.size(), false);
  told_ = done_ = 0;
  return true;
}

void Driver::restart() {
  for (const auto& block : blocks_) {
    block->channel->wait();
    block->channel->shared_done();
    block->channel->forget_kept();
    if (block->channel->round() > step_) block->channel->set_round(step_);
    method_->x_replaced(*block);
  }
  begun_ = false;
}

void Driver::gradient(std::size_t i) {
  begin();
  complete_[i] = true;
  for (; told_ < blocks_.size() && complete_[told_]; ++told_) method_->gradient(*blocks_[told_]);
}

void Driver::gradients() {
  for (std::size_t i = told_; i < blocks_.size(); ++i) gradient(i);
  gradient_done(blocks_.size());
}

void Driver::gradient_done(std::size_t blocks) {
  for (; done_ < blocks; ++done_) {
    blocks_[done_]->channel->wait();
    method_->gradient_done(*blocks_[done_]);
  }
}

void Driver::adapt_next() {
  gradient_done(adapted_ + 1);
  Block& block = *blocks_[adapted_++];
  if (block.channel->epoch() != block.seen_epoch) {
    block.seen_epoch = block.channel->epoch();
    method_->view_changed(block);
  }
  method_->adapt(block);
}

void Driver::finish_early(std::size_t i) {
  gradient(i);
  while (adapted_ < told_ && blocks_[adapted_]->channel->ready()) {
    adapt_next();
    // In order, so that all ranks agree; a block that is still being averaged is not final.
    if (ahead_ + 1 != adapted_ || blocks_[ahead_]->channel->busy()) continue;
    Block& block = *blocks_[ahead_++];
    end_block(block);
    begin_block(block, step_ + 1);
  }
}

void Driver::end_block(Block& block) {
  block.gradient_scale = 1;
  block.skipped = false;
}

void Driver::finish() {
  for (std::size_t i = told_; i < blocks_.size(); ++i) gradient(i);
  begin();  // of no blocks
  while (adapted_ < blocks_.size()) adapt_next();
  for (std::size_t i = ahead_; i < blocks_.size(); ++i) {
    while (blocks_[i]->channel->busy()) {
      blocks_[i]->channel->wait();
      method_->combine(*blocks_[i]);
    }
    end_block(*blocks_[i]);
  }
  complete_.assign(blocks_.size(), false);
  told_ = done_ = adapted_ = 0;
  begun_ = false;
  ++step_;
}

double Driver::waited() const {
  double seconds = 0;
  for (const auto& block : blocks_) seconds += block->channel->waited();
  return seconds;
}

SchedulePtr schedule_for(const Flock& flock, const Method& method, const std::string& topology,
                         std::uint64_t seed) {
  if (!method.needs_schedule()) return nullptr;
  const MethodSetting setting{flock.size(), flock.local_size()};
  SchedulePtr schedule = make_schedule(method.topology(topology, setting), flock.size(), seed);
  method.check(*schedule);
  return schedule;
}

namespace {

// What the method cannot do with these parameters, messages or local optimizer.
void check(const Method& method, const DriverOptions& options, DType parameters) {
  if (parameters != DType::float32 && parameters != DType::float64)
    throw InvalidArgument(fmt::format("drive: parameters are float32 or float64, not {}", name(parameters)));
  const std::string needed = method.needs_optimizer();
  if (!needed.empty() && options.optimizer.rfind(needed, 0) != 0)
    throw InvalidArgument(fmt::format("{} needs {} or {}w for its settings, not {}", options.method, needed,
                                      needed, options.optimizer));
  if (options.message == DType::float32) return;
  if (method.needs_exact_messages())
    throw InvalidArgument(fmt::format("{} cannot take {} messages: {}; use float32", options.method,
                                      name(options.message), method.exact_messages_because()));
  if (parameters != DType::float32)
    throw InvalidArgument(fmt::format("drive: {} parameters travel as they are; {} messages are for float32",
                                      name(parameters), name(options.message)));
}

}  // namespace

Driver drive(const Flock& flock, MutableBlock x, MutableBlock gradient, const DriverOptions& options) {
  if (x.count != gradient.count || x.dtype != gradient.dtype)
    throw InvalidArgument(fmt::format("drive: x has {} x {}, its gradient {} x {}", x.count, name(x.dtype),
                                      gradient.count, name(gradient.dtype)));
  const MethodPtr method = make_method(options.method);
  const Optimizer optimizer = parse_optimizer(options.optimizer);
  check(*method, options, x.dtype);
  const auto hypers = std::make_shared<std::vector<Hyper>>(1, optimizer.hyper);
  UpdatePtr update = method->make_update(x.dtype, x.count, 1, hypers);
  if (!update) update = optimizer.make(x.dtype, x.count, 1, hypers);
  ChannelOptions channel{schedule_for(flock, *method, options.topology, options.seed), options.message,
                         method->relay_rule()};
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Block>("x", x, gradient, std::vector<Segment>{{0, x.count, 0, true}},
                                           std::move(update),
                                           make_flock_channel(flock, options.name, channel)));
  return {method, std::move(blocks)};
}

}  // namespace starling
