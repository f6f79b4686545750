#include "starling/method/flock_collective.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/flock/quiet_losses.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/copy.h"

namespace starling::method {

// A background average that was not settled is not wanted any more: others may have left before it ended.
FlockCollective::~FlockCollective() {
  const QuietLosses quiet;
  average_ = {};
}

void FlockCollective::reduce(Pieces pieces, Reduction reduction) {
  if (message_ != DType::float32 && pieces[0].in.dtype == DType::float32) {
    reduce_shortened(std::move(pieces), reduction);
    return;
  }
  pending_.push_back(ByteOperations(flock_).allreduce(std::move(pieces), reduction, Name(name_ + "/reduce")));
}

void FlockCollective::reduce_shortened(Pieces pieces, Reduction reduction) {
  if (message_ == DType::int8)
    throw InvalidArgument(
        name_ +
        ": int8 messages cannot be summed on their way to everybody; use float32, float16 or "
        "bfloat16");
  // A copy of its own: others read outgoing memory while the result is being written.
  short_.resize(total_count(pieces) * size_of(message_));
  const Buffer shortened(message_, short_.data(), total_count(pieces));
  Pieces sent = {{shortened, shortened, 0}};
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    convert(piece.in, shortened.part(at, piece.in.count));
    at += piece.in.count;
  }
  lengthen_ = std::move(pieces);
  pending_.push_back(ByteOperations(flock_).allreduce(std::move(sent), reduction, Name(name_ + "/reduce")));
}

void FlockCollective::lengthen() {
  std::size_t at = 0;
  for (const Piece& piece : lengthen_) {
    convert({message_, short_.data() + at * size_of(message_), piece.in.count}, piece.out);
    at += piece.in.count;
  }
  lengthen_.clear();
}

void FlockCollective::gather(ConstBuffer mine, std::vector<std::byte>& all) {
  const std::size_t element = size_of(mine.dtype);
  const auto room = [&all, element](std::size_t count) {
    all.resize(count * element);
    return all.data();
  };
  pending_.push_back(ByteOperations(flock_).allgather(mine, room, Name(name_ + "/gather")));
}

void FlockCollective::broadcast(Pieces pieces, Rank root) {
  pending_.push_back(ByteOperations(flock_).broadcast(std::move(pieces), root, Name(name_ + "/broadcast")));
}

void FlockCollective::send(Pieces pieces, Rank to, const std::string& tag) {
  for (const Piece& piece : pieces) ByteOperations(flock_).send(piece.in, to, Name(name_ + "/" + tag));
}

void FlockCollective::receive(Pieces pieces, Rank from, const std::string& tag) {
  for (const Piece& piece : pieces)
    receiving_.push_back(ByteOperations(flock_).recv(piece.out, from, Name(name_ + "/" + tag)));
}

void FlockCollective::start_average(ConstBuffer block) {
  const std::byte* bytes = block.host_bytes();
  mean_.assign(bytes, bytes + block.bytes());
  const Buffer mean(block.dtype, mean_.data(), block.count);
  const Piece piece{mean, mean, 0};
  average_ = ByteOperations(flock_).allreduce({piece}, Reduction::average,
                                              Name(fmt::format("{}/average/{}", name_, generation_)));
}

bool FlockCollective::average_arrived(Buffer out) {
  if (!average_.ready()) return false;
  average_.wait();
  copy_bytes(out.host_data(), mean_.data(), mean_.size());
  return true;
}

void FlockCollective::abandon_average() {
  ++generation_;
  average_ = {};
}

bool FlockCollective::ready() {
  if (awaits_average_ && !average_.ready()) return false;
  for (std::vector<Pending>* all : {&pending_, &receiving_})
    for (Pending& one : *all)
      if (!one.ready()) return false;
  return true;
}

void FlockCollective::await() {
  while (awaits_average_ && !average_.wait_for(std::chrono::seconds(1))) {
  }
  for (Pending& one : pending_) one.wait();
  for (Pending& one : receiving_) wait_for_message(one);
}

void FlockCollective::finish() {
  if (std::exchange(awaits_average_, false)) average_.wait();
  std::vector<Pending> pending;
  std::vector<Pending> receiving;
  std::swap(pending, pending_);
  std::swap(receiving, receiving_);
  for (Pending& one : pending) one.wait();
  for (Pending& one : receiving) wait_for_message(one);
  lengthen();
}

void FlockCollective::wait_for_message(Pending& one) const {
  try {
    one.wait();
  } catch (const PeerLost& error) {
    if (flock_.on_peer_failure() != OnPeerFailure::reweight) throw;
    flock_.go_on_without(error.peer());
  }
}

}  // namespace starling::method
