#include "starling/method/flock_collective.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/flock/errors.h"
#include "starling/kernel/arithmetic.h"

namespace starling::method {

// A background average that was not settled is abandoned: other ranks may have left before it ended.
FlockCollective::~FlockCollective() {
  const QuietLosses quiet;
  average_ = {};
}

void FlockCollective::reduce(Pieces pieces, Reduction reduction) {
  // Beside vectors on a device, numbers for the host have a message of their own.
  const auto numbers = std::stable_partition(
      pieces.begin(), pieces.end(),
      [memory = pieces[0].in.memory](const Piece& piece) { return piece.in.memory == memory; });
  if (numbers != pieces.end()) {
    pending_.push_back(ByteOperations(flock_).allreduce(Pieces(numbers, pieces.end()), reduction,
                                                        Name(name_ + "/reduce/numbers")));
    pieces.erase(numbers, pieces.end());
  }
  if (!format_->exact() && pieces[0].in.dtype == DType::float32) {
    reduce_encoded(std::move(pieces), reduction);
    return;
  }
  pending_.push_back(ByteOperations(flock_).allreduce(std::move(pieces), reduction, Name(name_ + "/reduce")));
}

void FlockCollective::reduce_encoded(Pieces pieces, Reduction reduction) {
  if (!format_->summable())
    throw InvalidArgument(
        fmt::format("{}: {} messages cannot be summed in an all-reduce; use float32, float16 or bfloat16",
                    name_, format_->name()));
  // Sends a copy, because other ranks read outgoing memory while the result is being written.
  const std::size_t count = total_count(pieces);
  if (const Buffer& room = encoded_.buffer(); room.count != count || room.memory != pieces[0].in.memory)
    encoded_ = OwnedBuffer(format_->dtype(), count, pieces[0].in.memory);
  const Buffer encoded = encoded_.buffer();
  Pieces sent = {{encoded, encoded, 0}};
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    format_->encode(piece.in, encoded.part(at, piece.in.count));
    at += piece.in.count;
  }
  decode_into_ = std::move(pieces);
  pending_.push_back(ByteOperations(flock_).allreduce(std::move(sent), reduction, Name(name_ + "/reduce")));
}

void FlockCollective::decode() {
  std::size_t at = 0;
  for (const Piece& piece : decode_into_) {
    format_->decode(encoded_.buffer().part(at, piece.in.count), piece.out);
    at += piece.in.count;
  }
  decode_into_.clear();
}

void FlockCollective::gather(ConstBuffer mine, std::vector<std::byte>& all) {
  const auto room = [&all, dtype = mine.dtype](std::size_t count) {
    all.resize(count * size_of(dtype));
    return Buffer(dtype, all.data(), count);
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
  if (const Buffer& room = mean_.buffer();
      room.count != block.count || room.dtype != block.dtype || room.memory != block.memory)
    mean_ = OwnedBuffer(block.dtype, block.count, block.memory);
  const Buffer& mean = mean_.buffer();
  arithmetic_in(block.memory).copy(mean, block);
  const Piece piece{mean, mean, 0};
  average_ = ByteOperations(flock_).allreduce({piece}, Reduction::average,
                                              Name(fmt::format("{}/average/{}", name_, generation_)),
                                              /*complete=*/true);
}

bool FlockCollective::average_arrived(Buffer out) {
  if (!average_.ready()) return false;
  average_.wait();
  arithmetic_in(out.memory).copy(out, mean_.buffer());
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
  decode();
}

void FlockCollective::wait_for_message(Pending& one) const {
  try {
    one.wait();
  } catch (const PeerLost& error) {
    if (flock_.on_peer_failure() != OnPeerFailure::reweight) throw;
    flock_.continue_without(error.peer());
  }
}

}  // namespace starling::method
