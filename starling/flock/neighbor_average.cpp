#include "starling/flock/neighbor_average.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"

namespace starling {

NeighborAverage::NeighborAverage(std::shared_ptr<Core> core, Topic& topic, Core::Turn turn, Pieces pieces,
                                 Outgoing mine)
    : Operation(MessageKind::average, std::move(core), topic, turn.step),
      turn_(std::move(turn)),
      detail_means_(pieces.size() == 1 ? Detail::schedule : Detail::layout),
      detail_(layout_hash(turn_.schedule, pieces)),
      pieces_(std::move(pieces)),
      mine_(std::move(mine)) {}

NeighborAverage::NeighborAverage(std::shared_ptr<Core> core, Topic& topic, const Weighted& weights,
                                 bool symmetric, Pieces pieces, Outgoing mine)
    : Operation(MessageKind::average, std::move(core), topic),
      scheduled_(false),
      pieces_(std::move(pieces)),
      mine_(std::move(mine)) {
  turn_.exchange.self_weight = weights.self_weight;
  for (const auto& [rank, weight] : *weights.sources) turn_.exchange.hear(rank, weight);
  for (const auto& [rank, scale] : *weights.destinations) {
    turn_.exchange.tell(rank);
    scales_.push_back(scale);
  }
  if (std::all_of(scales_.begin(), scales_.end(), [](double scale) { return scale == 1; })) scales_.clear();
  if (symmetric) {
    detail_means_ = Detail::weight;
    detail_ = std::bit_cast<std::uint64_t>(weights.self_weight);
  } else if (pieces_.size() > 1) {
    detail_means_ = Detail::layout;
    detail_ = layout_hash(0, pieces_);
  }
}

void NeighborAverage::start() {
  if (!has_phases()) {
    start_mix();
    return;
  }
  // Later operations of this name must not take the numbers of this one's second phase.
  for (const Source& source : turn_.exchange.sources)
    numbers_from_.push_back(core_->mailbox.next_from(topic_, source.rank));
  for (const Destination& destination : turn_.exchange.destinations)
    numbers_to_.push_back(core_->mailbox.next_to(topic_, destination.rank));
  start_group();
}

Outgoing NeighborAverage::packed() const {
  Outgoing message = core_->fabric->reserve(message_bytes(pieces_));
  for (const Piece& piece : pieces_)
    copy_bytes(message.bytes().data() + piece.offset, piece.in.data, piece.in.bytes());
  return message;
}

void NeighborAverage::send(const Outgoing& message, const Topic& topic, Rank to, std::uint64_t number) const {
  MessageHeader head = header(pieces_[0].in.dtype, total_count(pieces_));
  head.name = topic.hash;
  head.sequence = number;
  head.detail = detail_;
  head.epoch = turn_.epoch;
  core_->fabric->post(message, head, to);
  trace_.bytes(message.bytes().size());
}

void NeighborAverage::expect(const Topic& topic, Rank source, std::uint64_t number) {
  Expectation expected = expectation(source, number, pieces_[0].in.dtype, total_count(pieces_));
  expected.name = topic.hash;
  expected.detail_means = detail_means_;
  expected.detail = detail_;
  expected.epoch = turn_.epoch;
  expected.later_phase = has_phases() && !in_group_;
  await(expected);
}

void NeighborAverage::start_group() {
  in_group_ = true;
  Topic& topic = core_->mailbox.topic(topic_.text + "/group", core_->identity);
  const Group& group = turn_.exchange.group;
  for (std::int64_t i = 0; i < group.size(); ++i) {
    if (group[i] == core_->self()) {
      own_place_ = static_cast<std::size_t>(i);
    } else {
      members_.hear(group[i], 1.0 / static_cast<double>(group.size()));
    }
  }
  if (!mine_) mine_ = packed();
  for (const Source& other : members_.sources) {
    send(mine_, topic, other.rank, core_->mailbox.next_to(topic, other.rank));
    expect(topic, other.rank, core_->mailbox.next_from(topic, other.rank));
    members_.tell(other.rank);
  }
  members_.self_weight = 1.0 / static_cast<double>(group.size());
}

// The mean over the group goes straight into outgoing memory where others want it.
void NeighborAverage::finish_group() {
  in_group_ = false;
  if (turn_.exchange.sources.empty() && turn_.exchange.destinations.empty()) {
    combine_pieces(members_, nullptr);
    finish();
    return;
  }
  Outgoing mean = core_->fabric->reserve(message_bytes(pieces_));
  combine_pieces(members_, mean.bytes().data());
  for (Piece& piece : pieces_) piece.in.data = mean.bytes().data() + piece.offset;
  mine_ = std::move(mean);
  awaited_.clear();
  start_mix();
}

void NeighborAverage::start_mix() {
  Mailbox& mailbox = core_->mailbox;
  const auto& [sources, destinations] = std::tie(turn_.exchange.sources, turn_.exchange.destinations);
  if (!mine_ && !destinations.empty() && scales_.empty()) mine_ = packed();
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const Rank to = destinations[i].rank;
    const std::uint64_t number = numbers_to_.empty() ? mailbox.next_to(topic_, to) : numbers_to_[i];
    if (scales_.empty()) {
      send(mine_, topic_, to, number);
    } else {
      send(scaled(scales_[i]), topic_, to, number);  // everybody gets a message of its own
    }
  }
  for (std::size_t i = 0; i < sources.size(); ++i)
    expect(topic_, sources[i].rank,
           numbers_from_.empty() ? mailbox.next_from(topic_, sources[i].rank) : numbers_from_[i]);
}

Outgoing NeighborAverage::scaled(double factor) const {
  Outgoing message = packed();
  for (const Piece& piece : pieces_)
    if (factor != 1) scale(piece.in.dtype, message.bytes().data() + piece.offset, factor, piece.in.count);
  return message;
}

// In the order of the group where there is one, so that every member gets the same bits.
void NeighborAverage::combine_pieces(const Exchange& exchange, std::byte* message) {
  double own = exchange.self_weight;
  for (std::size_t i = 0; i < awaited_.size(); ++i)
    if (!awaited_[i].arrival) own += exchange.sources[i].weight;  // a missing source's weight stays here
  std::vector<Term> terms;
  for (const Piece& piece : pieces_) {
    void* out = message == nullptr ? piece.out : message + piece.offset;
    if (awaited_.empty() && own == 1) {
      if (out != piece.in.data && piece.in.count > 0) std::memmove(out, piece.in.data, piece.in.bytes());
      continue;
    }
    terms.clear();
    bool placed = false;
    const auto place_own = [&] {
      if (!std::exchange(placed, true)) terms.push_back({piece.in.data, own});
    };
    const bool group = &exchange == &members_;
    if (!group) place_own();
    for (std::size_t i = 0; i < awaited_.size(); ++i) {
      if (i == own_place_) place_own();
      if (awaited_[i].arrival)
        terms.push_back({awaited_[i].arrival.bytes().data() + piece.offset, exchange.sources[i].weight});
    }
    place_own();
    combine(piece.in.dtype, out, terms, piece.in.count);
  }
  if (!scheduled_ || !core_->observed()) return;
  StepRecord record{step_, turn_.epoch, exchange};
  record.exchange.group = {};
  record.exchange.self_weight = own;
  std::size_t i = 0;
  std::erase_if(record.exchange.sources, [&](const Source&) { return !awaited_[i++].arrival; });
  core_->record(record);
}

void NeighborAverage::proceed() {
  if (in_group_) {
    finish_group();
    return;
  }
  combine_pieces(turn_.exchange, nullptr);
  finish();
}

}  // namespace starling
