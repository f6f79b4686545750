#include "starling/flock/neighbor_average.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "starling/fabric/device_messages.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/flock/flock.h"
#include "starling/flock/memory_check.h"
#include "starling/flock/neighbor_exchanger.h"
#include "starling/flock/pending.h"
#include "starling/kernel/arithmetic.h"

namespace starling::flock {

NeighborAverage::NeighborAverage(std::shared_ptr<FlockState> flock, Topic& topic, StepPlan plan,
                                 Pieces pieces, Outgoing mine)
    : Operation(MessageKind::average, std::move(flock), topic, plan.step, pieces[0].in.memory),
      plan_(std::move(plan)),
      detail_means_(pieces.size() == 1 && pieces[0].in.shape == 0 ? Detail::schedule : Detail::layout),
      detail_(layout_hash(plan_.schedule, pieces)),
      pieces_(std::move(pieces)),
      mine_(std::move(mine)) {
  step_in_messages_ = plan_.step_in_messages();
  note_scales();
}

// A destination with its own scale gets its own message.
void NeighborAverage::note_scales() {
  const auto& destinations = plan_.exchange.destinations;
  if (std::all_of(destinations.begin(), destinations.end(),
                  [](const Destination& to) { return to.scale == 1; }))
    return;
  for (const Destination& to : destinations) scales_.push_back(to.scale);
}

NeighborAverage::NeighborAverage(std::shared_ptr<FlockState> flock, Topic& topic, const Weighted& weights,
                                 bool symmetric, Pieces pieces, Outgoing mine)
    : Operation(MessageKind::average, std::move(flock), topic, std::nullopt, pieces[0].in.memory),
      scheduled_(false),
      pieces_(std::move(pieces)),
      mine_(std::move(mine)) {
  plan_.exchange.self_weight = weights.self_weight;
  for (const auto& [rank, weight] : *weights.sources) plan_.exchange.add_source(rank, weight);
  for (const auto& [rank, scale] : *weights.destinations) plan_.exchange.add_destination(rank, scale);
  plan_.exchange.group = weights.group;
  note_scales();
  if (symmetric) {
    detail_means_ = Detail::weight;
    detail_ = std::bit_cast<std::uint64_t>(weights.self_weight);
  } else {
    detail_means_ = pieces_.size() == 1 ? Detail::shape : Detail::layout;
    detail_ = layout_hash(0, pieces_);
  }
}

NeighborAverage::NeighborAverage(std::shared_ptr<FlockState> flock, Topic& topic, StepPlan plan,
                                 Pieces pieces, Outgoing mine, bool lanes)
    : NeighborAverage(std::move(flock), topic, std::move(plan), std::move(pieces), std::move(mine)) {
  lending_ = true;
  lanes_ = lanes;
  receipts_ = loses_messages(*flock_->fabric) && !lanes &&
              std::ranges::any_of(pieces_, [](const Piece& piece) { return piece.if_lost != IfLost::own; });
}

void NeighborAverage::start() {
  if (receipts_) mix_receipts_ = number_receipts("/receipt", plan_.exchange);
  if (!has_group()) {
    start_mix();
    return;
  }
  // Reserves the numbers of the second phase now, so that later operations of this name do not take them.
  for (const Source& source : plan_.exchange.sources)
    numbers_from_.push_back(flock_->mailbox.next_from(topic_, source.rank));
  for (const Destination& destination : plan_.exchange.destinations)
    numbers_to_.push_back(flock_->mailbox.next_to(topic_, destination.rank));
  start_group();
}

Outgoing NeighborAverage::packed() const {
  Outgoing message = reserve(*flock_->fabric, message_bytes(pieces_), memory());
  for (const Piece& piece : pieces_)
    arithmetic_in(memory()).copy(message.buffer(piece.in.dtype, piece.in.count, piece.offset), piece.in);
  return message;
}

void NeighborAverage::send(const OutgoingRange& range, const Topic& topic, Rank to, std::uint64_t number) {
  MessageHeader head = header(pieces_[0].in.dtype,
                              lanes_ && !in_group_ ? pieces_[0].in.count : total_count(pieces_), memory());
  head.name = topic.hash;
  head.sequence = number;
  head.detail = detail_;
  head.epoch = plan_.epoch;
  flock_->fabric->post(range, head, to);
  note_sent(to, topic.hash, number);
  sent(range.size());
}

void NeighborAverage::expect(const Topic& topic, Rank source, std::uint64_t number) {
  Expectation expected =
      expectation(source, number, pieces_[0].in.dtype,
                  lanes_ && !in_group_ ? pieces_[0].in.count : total_count(pieces_), memory());
  expected.name = topic.hash;
  expected.detail_means = detail_means_;
  expected.detail = detail_;
  if (!lanes_ || in_group_) expected.bytes = message_bytes(pieces_);
  expected.epoch = plan_.epoch;
  expected.later_phase = has_group() && !in_group_;
  await(expected);
}

void NeighborAverage::start_group() {
  in_group_ = true;
  Topic& topic = flock_->mailbox.topic(topic_.text + "/group", flock_->identity);
  const Group& group = plan_.exchange.group;
  for (std::int64_t i = 0; i < group.size(); ++i) {
    if (group[i] == flock_->self()) {
      own_place_ = static_cast<std::size_t>(i);
    } else {
      members_.add_source(group[i], 1.0 / static_cast<double>(group.size()));
    }
  }
  if (!mine_) mine_ = packed();
  for (const Source& other : members_.sources) {
    send(mine_, topic, other.rank, flock_->mailbox.next_to(topic, other.rank));
    expect(topic, other.rank, flock_->mailbox.next_from(topic, other.rank));
    members_.add_destination(other.rank);
  }
  members_.self_weight = 1.0 / static_cast<double>(group.size());
  if (receipts_) group_receipts_ = number_receipts("/group/receipt", members_);
}

// Reserves the numbers of receipts when the operation starts, so that later operations of this name do not
// take them.
NeighborAverage::Receipts NeighborAverage::number_receipts(const std::string& phase,
                                                           const Exchange& exchange) {
  Receipts numbers{&flock_->mailbox.topic(topic_.text + phase, flock_->identity), {}, {}};
  for (const Source& source : exchange.sources)
    numbers.to.push_back(flock_->mailbox.next_to(*numbers.topic, source.rank));
  for (const Destination& destination : exchange.destinations)
    numbers.from.push_back(flock_->mailbox.next_from(*numbers.topic, destination.rank));
  return numbers;
}

// A receipt is a point-to-point message with the weight that the receiver would have given to a message that
// was lost; 0 if the message arrived. Receipts are never lost.
void NeighborAverage::start_receipts(const Exchange& exchange, const Receipts& numbers) {
  in_receipts_ = true;
  MessageHeader head = header(DType::float64, 1);
  head.kind = static_cast<std::uint16_t>(MessageKind::point_to_point);
  head.name = numbers.topic->hash;
  head.epoch = plan_.epoch;
  for (std::size_t i = 0; i < exchange.sources.size(); ++i) {
    const double lost = awaited_[i].arrival ? 0 : exchange.sources[i].weight;
    const Outgoing message = flock_->fabric->reserve(sizeof lost);
    std::memcpy(message.bytes().data(), &lost, sizeof lost);
    head.sequence = numbers.to[i];
    flock_->fabric->post(message, head, exchange.sources[i].rank);
    note_sent(exchange.sources[i].rank, head.name, head.sequence);
    sent(sizeof lost);
  }
  for (std::size_t i = 0; i < exchange.destinations.size(); ++i) {
    Expectation expected = expectation(exchange.destinations[i].rank, numbers.from[i], DType::float64, 1);
    expected.kind = MessageKind::point_to_point;
    expected.name = numbers.topic->hash;
    expected.epoch = plan_.epoch;
    expected.later_phase = true;
    await(expected);
  }
}

// A dead receiver sends no receipt; its share is lost, and the next view restarts.
void NeighborAverage::read_receipts(const Exchange& exchange) {
  in_receipts_ = false;
  lost_shares_.assign(exchange.destinations.size(), 0);
  for (std::size_t i = 0; i < lost_shares_.size(); ++i) {
    const Arrival& receipt = awaited_[exchange.sources.size() + i].arrival;
    if (receipt) std::memcpy(&lost_shares_[i], receipt.bytes().data(), sizeof lost_shares_[i]);
    lost_shares_[i] *= exchange.destinations[i].scale;
  }
  awaited_.resize(exchange.sources.size());
}

// The mean over the group is written directly to outgoing memory if other ranks need it.
void NeighborAverage::finish_group() {
  in_group_ = false;
  if (plan_.exchange.sources.empty() && plan_.exchange.destinations.empty()) {
    conclude(members_);
    return;
  }
  Outgoing mean = reserve(*flock_->fabric, message_bytes(pieces_), memory());
  combine_pieces(members_, mean);
  for (Piece& piece : pieces_) piece.in = mean.buffer(piece.in.dtype, piece.in.count, piece.offset);
  mine_ = std::move(mean);
  awaited_.clear();
  lost_shares_.clear();
  start_mix();
}

void NeighborAverage::start_mix() {
  Mailbox& mailbox = flock_->mailbox;
  const auto& [sources, destinations] = std::tie(plan_.exchange.sources, plan_.exchange.destinations);
  if (lanes_) {
    start_lanes();
    return;
  }
  if (!mine_ && !destinations.empty() && scales_.empty()) mine_ = packed();
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const Rank to = destinations[i].rank;
    const std::uint64_t number = numbers_to_.empty() ? mailbox.next_to(topic_, to) : numbers_to_[i];
    if (scales_.empty()) {
      send(mine_, topic_, to, number);
    } else {
      send(scaled(scales_[i]), topic_, to, number);  // every destination gets its own message
    }
  }
  for (std::size_t i = 0; i < sources.size(); ++i)
    expect(topic_, sources[i].rank,
           numbers_from_.empty() ? mailbox.next_from(topic_, sources[i].rank) : numbers_from_[i]);
}

// A message carries block a or b. A rank that receives both from one sender gets a first.
void NeighborAverage::start_lanes() {
  Mailbox& mailbox = flock_->mailbox;
  for (const Lane lane : {Lane::a, Lane::b}) {
    const Piece& piece = pieces_[lane == Lane::a ? 0 : 1];
    Outgoing copied;
    for (const Destination& destination : plan_.exchange.destinations) {
      if (destination.lane != lane) continue;
      if (!mine_ && !copied) {
        copied = reserve(*flock_->fabric, piece.in.bytes(), memory());
        arithmetic_in(memory()).copy(copied.buffer(piece.in.dtype, piece.in.count), piece.in);
      }
      send(mine_ ? OutgoingRange(mine_, piece.offset, piece.in.bytes()) : copied, topic_, destination.rank,
           mailbox.next_to(topic_, destination.rank));
    }
  }
  auto& sources = plan_.exchange.sources;
  std::stable_sort(sources.begin(), sources.end(),
                   [](const Source& left, const Source& right) { return left.lane < right.lane; });
  for (const Source& source : sources) expect(topic_, source.rank, mailbox.next_from(topic_, source.rank));
}

Outgoing NeighborAverage::scaled(double factor) const {
  Outgoing message = packed();
  if (factor == 1) return message;
  for (const Piece& piece : pieces_)
    arithmetic_in(memory()).scale(message.buffer(piece.in.dtype, piece.in.count, piece.offset), factor);
  return message;
}

bool NeighborAverage::left_out(const Exchange& exchange, std::size_t source, IfLost rule) const {
  if (!awaited_[source].arrival) return true;
  if (rule != IfLost::mutual) return false;
  for (std::size_t i = 0; i < lost_shares_.size(); ++i)
    if (exchange.destinations[i].rank == exchange.sources[source].rank && lost_shares_[i] != 0) return true;
  return false;
}

double NeighborAverage::own_weight(const Exchange& exchange, bool into_b, IfLost rule) const {
  double own = into_b ? exchange.self_weight_b : exchange.self_weight;
  if (rule == IfLost::returned && receipts_) {
    for (const double share : lost_shares_) own += share;
    return own;
  }
  for (std::size_t i = 0; i < awaited_.size(); ++i)
    if (left_out(exchange, i, rule))
      own += into_b ? exchange.sources[i].weight_b : exchange.sources[i].weight;
  return own;
}

// In the order of the group, if there is one, so that every member gets the same bits.
std::vector<Term> NeighborAverage::terms_of(const Exchange& exchange, std::size_t index) const {
  const Piece& piece = pieces_[index];
  const bool group = &exchange == &members_;
  const bool into_b = lanes_ && index == 1 && !group;
  const std::size_t offset = lanes_ && !group ? 0 : piece.offset;
  std::vector<Term> terms;
  bool placed = false;
  const auto place_own = [&] {
    if (!std::exchange(placed, true))
      terms.emplace_back(piece.in, own_weight(exchange, into_b, piece.if_lost));
  };
  if (!group) place_own();
  for (std::size_t i = 0; i < awaited_.size(); ++i) {
    if (group && i == own_place_) place_own();
    if (left_out(exchange, i, piece.if_lost)) continue;
    const Source& source = exchange.sources[i];
    const double weight = into_b ? source.weight_b : source.weight;
    terms.push_back(awaited_[i].arrival.term(piece.in.dtype, piece.in.count, offset, weight));
  }
  place_own();
  return terms;
}

void NeighborAverage::combine_pieces(const Exchange& exchange, const Outgoing& message) {
  const Arithmetic& arithmetic = arithmetic_in(memory());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const Buffer out = message ? message.buffer(piece.in.dtype, piece.in.count, piece.offset) : piece.out;
    const std::vector<Term> terms = terms_of(exchange, i);
    if (terms.size() == 1 && terms[0].weight == 1) {
      if (out.address() != piece.in.address()) arithmetic.copy(out, piece.in);
    } else {
      arithmetic.combine(out, terms);
    }
  }
  record_step(exchange);
}

void NeighborAverage::record_step(const Exchange& exchange) {
  if (!scheduled_ || !flock_->observed()) return;
  StepRecord record{step_, plan_.epoch, exchange};
  record.exchange.group = {};
  const IfLost rule = pieces_[0].if_lost;
  record.exchange.self_weight = own_weight(exchange, false, rule);
  std::size_t i = 0;
  std::erase_if(record.exchange.sources, [&](const Source&) { return left_out(exchange, i++, rule); });
  flock_->record(record);
}

void NeighborAverage::conclude(const Exchange& exchange) {
  if (!lending_) {
    combine_pieces(exchange, {});
    finish();
    return;
  }
  for (std::size_t i = 0; i < pieces_.size(); ++i) terms_.push_back(terms_of(exchange, i));
  record_step(exchange);
  finish_lending();
}

void NeighborAverage::give_back() {
  // others need messages that this rank still has to send
  if (!ended() && has_phases()) wait_until(Deadline::max());
  drop();
}

void NeighborAverage::proceed() {
  const Exchange& exchange = in_group_ ? members_ : plan_.exchange;
  if (in_receipts_) {
    read_receipts(exchange);
  } else if (receipts_) {
    start_receipts(exchange, in_group_ ? group_receipts_ : mix_receipts_);
    return;
  }
  if (in_group_)
    finish_group();
  else
    conclude(plan_.exchange);
}

// The exchanges that methods start: see neighbor_exchanger.h.

PendingExchange& PendingExchange::operator=(PendingExchange&& other) noexcept {
  std::swap(operation_, other.operation_);
  return *this;
}

PendingExchange::~PendingExchange() {
  if (!operation_) return;
  // The pieces are only read for sending, which is done: only a group needs a wait.
  try {
    operation_->give_back();
  } catch (...) {
    // Only a forked child gets here; it has nothing to wait for.
  }
}

bool PendingExchange::ready() {
  return !operation_ || operation_->look();
}

void PendingExchange::wait() {
  if (!operation_) return;
  operation_->wait_until(Deadline::max());
  operation_->raise();
}

std::span<const Term> PendingExchange::terms(std::size_t piece) const {
  return operation_->terms(piece);
}

std::uint32_t PendingExchange::epoch() const {
  return operation_->epoch();
}

struct NeighborExchanger::State {
  std::shared_ptr<FlockState> flock;
  Topic& topic;
  ScheduleCursor cursor;
};

NeighborExchanger::NeighborExchanger(const Flock& flock, const SchedulePtr& schedule, const Name& name)
    : state_(std::make_shared<State>(State{flock.state_, flock.state_->topic(name), {}})) {
  flock.state_->set_cursor(state_->cursor, schedule, ScheduleCursor::Blocks::any);
}

PendingExchange NeighborExchanger::start(Pieces pieces, Outgoing memory) {
  FlockState& flock = *state_->flock;
  check_memory(*flock.fabric, pieces, state_->topic.text);
  flock.runtime->enter();
  StepPlan plan;
  flock.plan_next_step(state_->cursor, plan);
  const bool lanes = mixing() == Mixing::two_block;
  auto operation = std::make_shared<NeighborAverage>(state_->flock, state_->topic, std::move(plan),
                                                     std::move(pieces), std::move(memory), lanes);
  const DeviceGuard guard(*flock.runtime);
  operation->start();
  if (operation->has_phases() && !operation->ended()) flock.runtime->add_in_flight(operation);
  return PendingExchange(operation);
}

Exchange NeighborExchanger::next() const {
  return state_->flock->peek(state_->cursor);
}

Step NeighborExchanger::step() const {
  return state_->flock->step_of(state_->cursor);
}

void NeighborExchanger::set_step(Step step) {
  state_->flock->set_step(state_->cursor, step);
}

Mixing NeighborExchanger::mixing() const {
  return schedule()->mixing();
}

SchedulePtr NeighborExchanger::schedule() const {
  return state_->flock->schedule_of(state_->cursor);
}

}  // namespace starling::flock
