#include "starling/flock/broadcast.h"

#include <algorithm>

#include "starling/flock/errors.h"
#include "starling/kernel/copy.h"

namespace starling {

void Broadcast::begin() {
  arrivals_.clear();
  if (std::find(members().begin(), members().end(), root_) == members().end())
    throw PeerLost(root_, described(), step_);
  const DType dtype = pieces_[0].in.dtype;
  const std::size_t count = total_count(pieces_);
  const bool root = core_->self() == root_;
  const Outgoing message = core_->fabric->reserve(root ? message_bytes(pieces_) : 0);
  if (root)
    for (const Piece& piece : pieces_)
      copy_bytes(message.bytes().data() + piece.offset, piece.in.data, piece.in.bytes());
  MessageHeader head = header_for(0, dtype, count);
  head.detail = layout_hash(static_cast<std::uint64_t>(root_), pieces_);
  post_to_others(message, head);
  for (const Rank member : members()) {
    if (member == core_->self()) continue;
    Expectation expected = expectation_of(0, member, dtype, count);
    expected.detail_means = pieces_.size() == 1 ? Detail::root : Detail::layout;
    expected.detail = head.detail;
    expected.bytes = member == root_ ? message_bytes(pieces_) : 0;
    await(expected);
  }
}

bool Broadcast::go_on() {
  arrivals_ = take_arrivals();
  return true;
}

void Broadcast::deliver() {
  for (const Arrival& arrival : arrivals_) {
    if (arrival.source() != root_) continue;
    for (const Piece& piece : pieces_)
      copy_bytes(piece.out, arrival.bytes().data() + piece.offset, piece.in.bytes());
  }
  arrivals_.clear();
}

Receive::Receive(std::shared_ptr<Core> core, Topic& topic, MutableBlock block, Rank source)
    : Operation(MessageKind::letter, std::move(core), topic), block_(block) {
  await(expectation(source, core_->mailbox.next_from(topic_, source), block.dtype, block.count));
}

void Receive::proceed() {
  const Arrival& arrival = awaited_[0].arrival;
  copy_bytes(block_.data, arrival.bytes().data(), ConstBlock(block_).bytes());
  finish();
}

}  // namespace starling
