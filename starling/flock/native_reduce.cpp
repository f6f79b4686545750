#include "starling/flock/native_reduce.h"

#include <cstring>
#include <fmt/format.h>

#include "starling/flock/errors.h"
#include "starling/kernel/average.h"
#include "starling/kernel/copy.h"

namespace starling::flock {
namespace {

constexpr std::size_t kLeast = std::size_t{1} << 20;  // bytes

}  // namespace

bool NativeReduce::serves(const FlockState& flock, const Pieces& pieces, Reduction reduction) {
  Collectives* engine = flock.fabric->collectives();
  const bool whole = flock.identity == 0 && flock.size() == flock.fabric->size() && flock.size() > 1;
  const DType dtype = pieces[0].in.dtype;
  return engine != nullptr && whole && !flock.reweighting() && engine->sums(dtype) &&
         (reduction == Reduction::sum || reduction == Reduction::average) &&
         total_count(pieces) * size_of(dtype) >= kLeast;
}

NativeReduce::NativeReduce(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces,
                           Reduction reduction)
    : Collective(MessageKind::staged_reduction, std::move(flock), topic),
      pieces_(std::move(pieces)),
      reduction_(reduction),
      dtype_(pieces_[0].in.dtype),
      count_(total_count(pieces_)) {}

void NativeReduce::begin() {
  MessageHeader head = header_for(0, dtype_, count_);
  head.detail = layout_hash(
      static_cast<std::uint64_t>(reduction_) * 16 + static_cast<std::uint64_t>(AllreduceAlgorithm::native),
      pieces_);
  post_to_others(flock_->fabric->reserve(0), head);
  for (const Rank member : members()) {
    if (member == flock_->self()) continue;
    Expectation expected = expectation_of(0, member, dtype_, count_);
    expected.detail_means = Detail::layout;
    expected.detail = head.detail;
    expected.bytes = 0;
    await(expected);
  }
}

bool NativeReduce::settle() {
  if (!running_) return Collective::settle();
  if (running_->done) return true;
  if (std::chrono::steady_clock::now() > limit_)
    throw TimedOut(
        fmt::format("{}: the engine's own sum of all ranks took longer than the timeout", topic_.text));
  return false;
}

bool NativeReduce::go_on() {
  if (running_) return true;
  std::uint64_t number = 0;
  if (ready_) {
    std::memcpy(&number, awaited_[0].arrival.bytes().data(), sizeof(number));
  } else if (place() == 0) {
    number = flock_->fabric->collectives()->take_number();
    const Outgoing message = flock_->fabric->reserve(sizeof(number));
    std::memcpy(message.bytes().data(), &number, sizeof(number));
    post_to_others(message, header_for(1, DType::int64, 1));
  } else {
    ready_ = true;
    awaited_.clear();
    await(expectation_of(1, members()[0], DType::int64, 1));
    return false;
  }
  awaited_.clear();
  launch(number);
  return false;
}

void NativeReduce::launch(std::uint64_t number) {
  const std::size_t bytes = count_ * size_of(dtype_);
  running_ = std::make_shared<Running>();
  running_->memory = flock_->fabric->reserve(bytes);
  std::byte* to = running_->memory.bytes().data();
  for (const Piece& piece : pieces_) {
    copy_bytes(to, piece.in);
    to += piece.in.bytes();
  }
  limit_ = std::chrono::steady_clock::now() + flock_->runtime->timeout.load();
  flock_->fabric->collectives()->sum(number, running_->memory.buffer(dtype_, count_),
                                     [running = running_, fabric = flock_->fabric.get()] {
                                       running->done = true;
                                       fabric->nudge();
                                     });
  sent(2 * (members().size() - 1) * bytes / members().size());
}

void NativeReduce::deliver() {
  std::byte* from = running_->memory.bytes().data();
  if (reduction_ == Reduction::average) divide(dtype_, from, static_cast<double>(members().size()), count_);
  for (const Piece& piece : pieces_) {
    copy_bytes(piece.out.host_data(), from, piece.in.bytes());
    from += piece.in.bytes();
  }
  running_.reset();
}

}  // namespace starling::flock
