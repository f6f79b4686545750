#include "starling/method/driver.h"

#include <algorithm>

namespace starling::method {

Driver::Driver(MethodPtr method, std::vector<std::unique_ptr<Block>> blocks)
    : method_(std::move(method)), blocks_(std::move(blocks)), complete_(blocks_.size()) {}

void Driver::set_step(Step step) {
  step_ = step;
  for (const auto& block : blocks_)
    if (NeighborChannel* neighbors = block->channel->neighbors()) neighbors->set_round(step);
  parameters_changed();
}

void Driver::parameters_changed() {
  for (const auto& block : blocks_) block->x_changed();
}

void Driver::begin() {
  if (begun_) return;
  begun_ = true;
  for (; ahead_ < blocks_.size(); ++ahead_) begin_block(*blocks_[ahead_], step_);
  ahead_ = 0;
}

void Driver::begin_block(Block& block, Step step) {
  block.step = step;
  block.channel->note_step(step);
  method_->begin(block);
}

bool Driver::withdraw_gradients() {
  const bool under_way = told_ > 0 && done_ < blocks_.size() && method_->sends_gradients();
  if (adapted_ > 0 || under_way) return false;
  for (const auto& block : blocks_) end_block(*block);
  complete_.assign(blocks_.size(), false);
  told_ = done_ = 0;
  return true;
}

void Driver::restart() {
  for (const auto& block : blocks_) {
    block->channel->wait();
    block->drop_shared();
    if (NeighborChannel* neighbors = block->channel->neighbors(); neighbors && neighbors->round() > step_)
      neighbors->set_round(step_);
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
  gradient_done(blocks_.size(), true);
}

bool Driver::arrived(Block& block, bool may_wait) {
  if (!may_wait && !block.channel->ready()) return false;
  block.channel->wait();
  return true;
}

bool Driver::gradient_done(std::size_t blocks, bool may_wait) {
  for (; done_ < blocks; ++done_) {
    Block& block = *blocks_[done_];
    do {
      if (!arrived(block, may_wait)) return false;
      method_->gradient_done(block);
    } while (block.channel->busy());
  }
  return true;
}

bool Driver::adapt_next(bool may_wait) {
  if (!gradient_done(adapted_ + 1, may_wait)) return false;
  Block& block = *blocks_[adapted_++];
  if (const NeighborChannel* neighbors = block.channel->neighbors();
      neighbors != nullptr && neighbors->epoch() != block.seen_epoch) {
    block.seen_epoch = neighbors->epoch();
    method_->view_changed(block);
  }
  method_->adapt(block);
  return true;
}

void Driver::finish_early(std::size_t i) {
  runs_ahead_ = true;
  gradient(i);
  while (adapted_ < told_ && adapt_next(false)) begin_next_step_of_final();
}

// Blocks begin in order, so that all ranks agree; a block whose average has not arrived is not final.
void Driver::begin_next_step_of_final() {
  if (!runs_ahead_ || ahead_ + 1 != adapted_ || blocks_[ahead_]->channel->busy()) return;
  Block& block = *blocks_[ahead_++];
  end_block(block);
  begin_block(block, step_ + 1);
}

void Driver::end_block(Block& block) {
  block.gradient_scale = 1;
  block.skipped = false;
}

bool Driver::proceed(bool may_wait) {
  for (std::size_t i = told_; i < blocks_.size(); ++i) gradient(i);
  begin();  // even if there are no blocks
  while (adapted_ < blocks_.size()) {
    if (!adapt_next(may_wait)) return false;
    begin_next_step_of_final();
  }
  for (combined_ = std::max(combined_, ahead_); combined_ < blocks_.size(); ++combined_) {
    Block& block = *blocks_[combined_];
    while (block.channel->busy()) {
      if (!arrived(block, may_wait)) return false;
      method_->combine(block);
    }
    end_block(block);
  }
  complete_.assign(blocks_.size(), false);
  told_ = done_ = adapted_ = combined_ = 0;
  begun_ = false;
  ++step_;
  return true;
}

void Driver::settle() {
  for (const auto& block : blocks_) method_->settle(*block);
}

double Driver::waited() const {
  double seconds = 0;
  for (const auto& block : blocks_) seconds += block->channel->waited();
  return seconds;
}

Staleness Driver::staleness() const {
  Staleness all;
  for (const auto& block : blocks_) {
    const Staleness one = block->channel->staleness();
    all.sum += one.sum;
    all.used += one.used;
    all.oldest = std::max(all.oldest, one.oldest);
  }
  return all;
}

}  // namespace starling::method
