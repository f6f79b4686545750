#include "starling/flock/long_average.h"

#include <algorithm>

#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {
namespace {

constexpr std::size_t kLong = std::size_t{8} << 20;  // bytes
constexpr std::size_t kPart = std::size_t{1} << 20;
constexpr int kPatience = 3;

}  // namespace

bool LongAverage::suits(const Exchange& exchange, const Pieces& pieces) {
  return pieces.size() == 1 && pieces[0].in.on_host() && pieces[0].in.bytes() >= kLong &&
         exchange.group.size() <= 1 && !(exchange.sources.empty() && exchange.destinations.empty());
}

LongAverage::LongAverage(std::shared_ptr<FlockState> flock, Topic& topic, StepPlan plan, const Piece& block,
                         Outgoing mine)
    : Operation(MessageKind::long_average, std::move(flock), topic, plan.step, MemoryKind::host),
      plan_(std::move(plan)),
      block_(block),
      mine_(std::move(mine)),
      parts_((block.in.bytes() + kPart - 1) / kPart) {
  step_in_messages_ = plan_.step_in_messages();
}

LongAverage::Part LongAverage::part(std::size_t index) const {
  const std::size_t each = kPart / size_of(block_.in.dtype);
  const std::size_t begin = index * each;
  return {begin, std::min(each, block_.in.count - begin)};
}

void LongAverage::start() {
  // All parts share one number; they differ by name.
  for (const Source& source : plan_.exchange.sources)
    numbers_from_.push_back(flock_->mailbox.next_from(topic_, source.rank));
  for (const Destination& destination : plan_.exchange.destinations) {
    numbers_to_.push_back(flock_->mailbox.next_to(topic_, destination.rank));
    note_sent(destination.rank, topic_.hash, numbers_to_.back());  // part 0 is checked first
  }
  for (std::size_t index = 0; index < parts_; ++index)
    for (std::size_t i = 0; i < plan_.exchange.sources.size(); ++i) {
      Expectation expected =
          expectation(plan_.exchange.sources[i].rank, numbers_from_[i], block_.in.dtype, block_.in.count);
      expected.name += index;
      expected.bytes = part(index).count * size_of(block_.in.dtype);
      expected.later_phase = index > 0;
      expected.detail_means = block_.in.shape == 0 ? Detail::schedule : Detail::layout;
      expected.detail = with_shape(plan_.schedule, block_.in);
      expected.epoch = plan_.epoch;
      await(expected);
    }
  for (std::size_t index = 0; index < parts_; ++index) {
    post_part(index);
    advance();
    // If ranks share a processor core, yields it now, before this data falls out of the cache.
    for (int k = 0; k < kPatience && combined_ < posted_ && !ended(); ++k) {
      flock_->fabric->yield_cpu();
      advance();
    }
  }
}

void LongAverage::post_part(std::size_t index) {
  const auto [begin, count] = part(index);
  const std::size_t element = size_of(block_.in.dtype);
  Outgoing copied;
  if (!mine_ && !numbers_to_.empty()) {
    copied = flock_->fabric->reserve(count * element);
    copy_bytes(copied.bytes().data(), block_.in.part(begin, count));
  }
  const OutgoingRange plain = mine_ ? OutgoingRange(mine_, begin * element, count * element) : copied;
  MessageHeader head = header(block_.in.dtype, block_.in.count);
  head.name += index;
  head.detail = with_shape(plan_.schedule, block_.in);
  head.epoch = plan_.epoch;
  for (std::size_t i = 0; i < numbers_to_.size(); ++i) {
    head.sequence = numbers_to_[i];
    const Destination& to = plan_.exchange.destinations[i];
    if (to.scale == 1)
      flock_->fabric->post(plain, head, to.rank);
    else
      flock_->fabric->post(scaled_part(index, to.scale), head, to.rank);
  }
  sent(count * element * numbers_to_.size());
  posted_ = index + 1;
}

// A destination with its own scale gets its own message.
Outgoing LongAverage::scaled_part(std::size_t index, double factor) const {
  const auto [begin, count] = part(index);
  const std::size_t element = size_of(block_.in.dtype);
  Outgoing message = flock_->fabric->reserve(count * element);
  copy_bytes(message.bytes().data(), block_.in.part(begin, count));
  scale(block_.in.dtype, message.bytes().data(), factor, count);
  return message;
}

void LongAverage::combine_part(std::size_t index) {
  const auto [begin, count] = part(index);
  const std::size_t sources = plan_.exchange.sources.size();
  double own = plan_.exchange.self_weight;
  std::vector<Term> terms = {{block_.in.part(begin, count), 0}};
  for (std::size_t i = 0; i < sources; ++i) {
    const Arrival& arrival = awaited_[index * sources + i].arrival;
    const double weight = plan_.exchange.sources[i].weight;
    if (arrival)
      terms.emplace_back(arrival.bytes().data(), weight);
    else
      own += weight;  // the weight of a missing source is added to the own weight
  }
  terms[0].weight = own;
  // Not in place, the result bypasses the cache, as one long call would do.
  const bool in_place = block_.out.address() == block_.in.address();
  combine(block_.out.part(begin, count), terms, in_place ? Store::cached : Store::streaming);
  if (index + 1 == parts_ && flock_->observed()) {
    StepRecord record{step_, plan_.epoch, plan_.exchange};
    record.exchange.self_weight = own;
    std::size_t i = index * sources;
    std::erase_if(record.exchange.sources, [&](const Source&) { return !awaited_[i++].arrival; });
    flock_->record(record);
  }
  for (std::size_t i = 0; i < sources; ++i) awaited_[index * sources + i].arrival = {};
}

bool LongAverage::settle() {
  const std::size_t sources = plan_.exchange.sources.size();
  while (combined_ < posted_ && settle_some(combined_ * sources, (combined_ + 1) * sources))
    combine_part(combined_++);
  return combined_ == parts_;
}

void LongAverage::proceed() {
  mine_ = {};
  finish();
}

}  // namespace starling::flock
