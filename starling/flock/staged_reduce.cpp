#include "starling/flock/staged_reduce.h"

#include <utility>

namespace starling::flock {
namespace {

DType traveling(DType dtype) {
  return is_floating(dtype) && size_of(dtype) == 2 ? DType::float32 : dtype;
}

}  // namespace

StagedReduce::StagedReduce(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces,
                           Reduction reduction, AllreduceAlgorithm algorithm)
    : Collective(MessageKind::staged_reduction, std::move(flock), topic, pieces[0].in.memory),
      pieces_(std::move(pieces)),
      reduction_(reduction),
      algorithm_(algorithm),
      count_(total_count(pieces_)),
      dtype_(traveling(pieces_[0].in.dtype)) {
  if (reduction_ == Reduction::average && is_floating(dtype_)) leave_payloads_to_device(memory());
}

void StagedReduce::begin() {
  work_ = kernel::OwnedBuffer(dtype_, count_, memory());
  std::size_t at = 0;
  for (const Piece& piece : pieces_) {
    arithmetic_in(memory()).copy(work(at, piece.in.count), piece.in);
    at += piece.in.count;
  }
  rounds_ = reduce_rounds(algorithm_, place(), members().size(), count_);
  round_ = 0;
  if (!rounds_.empty()) start_round();
}

void StagedReduce::start_round() {
  const std::uint64_t what =
      static_cast<std::uint64_t>(reduction_) * 16 + static_cast<std::uint64_t>(algorithm_);
  const ReduceRound& round = rounds_[round_];
  for (const auto& send : round.sends) {
    const std::size_t count = send.end - send.begin;
    const Outgoing message = reserve(count * size_of(dtype_));
    arithmetic_in(memory()).copy(message.buffer(dtype_, count), work(send.begin, count));
    MessageHeader head = header_for(0, dtype_, count);
    head.detail = layout_hash(what, pieces_);
    post_numbered(message, head, members()[send.peer]);
  }
  for (const auto& receive : round.receives) {
    Expectation expected =
        numbered(expectation_of(0, members()[receive.peer], dtype_, receive.end - receive.begin));
    expected.detail_means = Detail::layout;
    expected.detail = layout_hash(what, pieces_);
    expected.later_phase = round_ > 0;
    await(expected);
  }
}

bool StagedReduce::go_on() {
  if (rounds_.empty()) return true;
  std::size_t next = 0;
  for (const auto& receive : rounds_[round_].receives) {
    const std::size_t count = receive.end - receive.begin;
    const Buffer own = work(receive.begin, count);
    const Term arrived = term_of(awaited_[next++].arrival, dtype_, count);
    if (receive.add && reduction_ == Reduction::average) {
      average_in(receive, own, arrived);
    } else if (receive.add) {
      arithmetic_in(memory()).reduce(reduction_, own, own.at(arrived.data));
    } else {
      copy_term(own, arrived);
    }
  }
  awaited_.clear();
  if (++round_ == rounds_.size()) return true;
  start_round();
  return false;
}

// Ranks exchange averages, not sums, so that equal values stay unchanged. The terms are in the order of
// members, because both ends of an exchange must get the same bits.
void StagedReduce::average_in(const ReduceRound::Transfer& receive, Buffer own, Term arrived) const {
  const auto all = static_cast<double>(receive.mine + receive.theirs);
  arrived.weight = static_cast<double>(receive.theirs) / all;
  Term terms[] = {{own, static_cast<double>(receive.mine) / all}, arrived};
  if (receive.peer < place()) std::swap(terms[0], terms[1]);
  arithmetic_in(memory()).combine(own, terms);
}

void StagedReduce::deliver() {
  std::size_t at = 0;
  for (const Piece& piece : pieces_) {
    arithmetic_in(memory()).copy(piece.out, work(at, piece.in.count));
    at += piece.in.count;
  }
}

}  // namespace starling::flock
