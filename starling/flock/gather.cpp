#include "starling/flock/gather.h"

#include "starling/fabric/device_messages.h"
#include "starling/flock/memory_check.h"
#include "starling/kernel/arithmetic.h"

namespace starling::flock {
namespace {

/// Writes elements one after another to a buffer.
class Appender {
 public:
  explicit Appender(Buffer to) : to_(to) {}

  void add(ConstBuffer from) { arithmetic_in(to_.memory).copy(next(from.count), from); }
  /// The place of the next elements, for the caller to write.
  Buffer next(std::size_t count) { return to_.part(std::exchange(at_, at_ + count), count); }

 private:
  Buffer to_;
  std::size_t at_ = 0;
};

}  // namespace

void GatherAll::begin() {
  arrivals_.clear();
  MessageHeader head = header_for(0, in_.dtype, in_.count);
  head.detail = with_shape(0, in_);
  const Outgoing message = reserve(in_.bytes());
  arithmetic_in(memory()).copy(message.buffer(in_.dtype, in_.count), in_);
  post_to_others(message, head);
  for (const Rank member : members()) {
    if (member == flock_->self()) continue;
    Expectation expected = expectation_of(0, member, in_.dtype, in_.count);
    expected.any_count = true;
    expected.detail_means = Detail::shape;
    expected.detail = head.detail;
    await(expected);
  }
}

bool GatherAll::go_on() {
  arrivals_ = take_arrivals();
  return true;
}

void GatherAll::deliver() {
  std::size_t total = in_.count;
  for (const Arrival& arrival : arrivals_) total += arrival.header().count;
  Appender to(room_for(room_, total, in_, described()));
  for (std::size_t at = 0; at <= arrivals_.size(); ++at) {
    if (at == place()) to.add(in_);
    if (at == arrivals_.size()) break;
    const std::size_t count = arrivals_[at].header().count;
    copy_term(to.next(count), term_of(arrivals_[at], in_.dtype, count));
  }
  arrivals_.clear();
}

void GatherNeighbors::start() {
  std::vector<Rank> sources;
  std::vector<Rank> destinations;
  for (std::int64_t i = 0; i < plan_.exchange.group.size(); ++i)
    if (plan_.exchange.group[i] != flock_->self()) {
      sources.push_back(plan_.exchange.group[i]);
      destinations.push_back(plan_.exchange.group[i]);
    }
  for (const Source& source : plan_.exchange.sources) sources.push_back(source.rank);
  for (const Destination& to : plan_.exchange.destinations) destinations.push_back(to.rank);
  if (!destinations.empty()) {
    const Outgoing message = reserve(*flock_->fabric, in_.bytes(), in_.memory);
    arithmetic_in(in_.memory).copy(message.buffer(in_.dtype, in_.count), in_);
    MessageHeader head = header(in_.dtype, in_.count, in_.memory);
    head.detail = with_shape(plan_.schedule, in_);
    head.epoch = plan_.epoch;
    for (const Rank to : destinations) post(message, head, to);
  }
  for (const Rank source : sources) {
    Expectation expected =
        expectation(source, flock_->mailbox.next_from(topic_, source), in_.dtype, in_.count, in_.memory);
    expected.any_count = true;
    expected.detail_means = in_.shape == 0 ? Detail::schedule : Detail::layout;
    expected.detail = with_shape(plan_.schedule, in_);
    expected.epoch = plan_.epoch;
    await(expected);
  }
}

void GatherNeighbors::proceed() {
  std::size_t total = 0;
  for (const Awaited& awaited : awaited_)
    if (awaited.arrival) total += awaited.arrival.header().count;
  Appender to(room_for(room_, total, in_, described()));
  for (const Awaited& awaited : awaited_)
    if (const Arrival& arrival = awaited.arrival) {
      const std::size_t count = arrival.header().count;
      copy_term(to.next(count), term_of(arrival, in_.dtype, count));
    }
  finish();
}

}  // namespace starling::flock
