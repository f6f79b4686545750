#include "starling/flock/broadcast.h"

#include <algorithm>

#include "starling/flock/errors.h"
#include "starling/kernel/arithmetic.h"

namespace starling::flock {

void Broadcast::begin() {
  arrivals_.clear();
  if (std::find(members().begin(), members().end(), root_) == members().end())
    throw PeerLost(root_, described(), step_, flock_->mailbox.why_left(root_));
  const DType dtype = pieces_[0].in.dtype;
  const std::size_t count = total_count(pieces_);
  const bool root = flock_->self() == root_;
  const Outgoing message = reserve(root ? message_bytes(pieces_) : 0);
  if (root)
    for (const Piece& piece : pieces_)
      arithmetic_in(memory()).copy(message.buffer(piece.in.dtype, piece.in.count, piece.offset), piece.in);
  MessageHeader head = header_for(0, dtype, count);
  head.detail = layout_hash(static_cast<std::uint64_t>(root_), pieces_);
  post_to_others(message, head);
  for (const Rank member : members()) {
    if (member == flock_->self()) continue;
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
      copy_term(piece.out, term_of(arrival, piece.in.dtype, piece.in.count, piece.offset));
  }
  arrivals_.clear();
}

Receive::Receive(std::shared_ptr<FlockState> flock, Topic& topic, Buffer block, Rank source)
    : Operation(MessageKind::point_to_point, std::move(flock), topic, std::nullopt, block.memory),
      block_(block) {
  if (is_floating(block.dtype)) leave_payloads_to_device(block.memory);
  await(
      expectation(source, flock_->mailbox.next_from(topic_, source), block.dtype, block.count, block.memory));
}

void Receive::proceed() {
  copy_term(block_, term_of(awaited_[0].arrival, block_.dtype, block_.count));
  finish();
}

}  // namespace starling::flock
