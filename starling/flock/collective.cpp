#include "starling/flock/collective.h"

#include <algorithm>

#include "starling/flock/errors.h"

namespace starling::flock {
namespace {

constexpr std::uint64_t kDecision = 0x636F6D6D6974;
constexpr std::uint64_t kHave = 1000;  // a phase that no operation uses
constexpr std::uint64_t kPhases[] = {0, 1, 2, kHave};
constexpr std::uint64_t kNumbered = 2000;

}  // namespace

Collective::Collective(MessageKind kind, std::shared_ptr<FlockState> flock, Topic& topic, MemoryKind memory)
    : Operation(kind, std::move(flock), topic, std::nullopt, memory),
      memory_(memory),
      sequence_(flock_->mailbox.next_call(topic)),
      safe_(flock_->reweighting()) {
  // Ranks must be in the same step: a sum of gradients of different steps would be silently wrong.
  if (topic.call && topic.call->same_step)
    step_in_messages_ = topic.call->step.load(std::memory_order_relaxed);
}

void Collective::start() {
  attempt();
}

void Collective::attempt() {
  awaited_.clear();
  posted_.clear();
  awaited_from_.clear();
  complete_ = false;
  view_ = safe_ ? flock_->membership.newest() : flock_->membership.first();
  place_ = static_cast<std::size_t>(std::find(members().begin(), members().end(), flock_->self()) -
                                    members().begin());
  begin();
}

MessageKind Collective::kind_in_messages() const {
  return static_cast<MessageKind>(static_cast<std::uint16_t>(kind_) | (safe_ ? kReweightingKind : 0));
}

MessageHeader Collective::header_for(std::uint64_t phase, DType dtype, std::size_t count) const {
  MessageHeader head = header(dtype, count, memory_);
  head.kind = static_cast<std::uint16_t>(kind_in_messages());
  head.name = phase_name(phase);
  head.sequence = sequence_;
  head.epoch = view_->epoch;
  return head;
}

void Collective::post_to(Rank to, const OutgoingRange& range, const MessageHeader& head) const {
  flock_->fabric->post(range, head, to);
  sent(range.size());
}

void Collective::post_to_others(const OutgoingRange& range, const MessageHeader& head) const {
  for (const Rank to : members())
    if (to != flock_->self()) flock_->fabric->post(range, head, to);
  sent(range.size() * (members().size() - 1));
}

Expectation Collective::expectation_of(std::uint64_t phase, Rank source, DType dtype,
                                       std::size_t count) const {
  Expectation expected = expectation(source, sequence_, dtype, count, memory_);
  expected.kind = kind_in_messages();
  expected.name = phase_name(phase);
  expected.epoch = view_->epoch;
  expected.of_attempt = true;
  expected.later_phase = phase != 0;
  return expected;
}

void Collective::post_numbered(const Outgoing& message, MessageHeader head, Rank to) {
  head.name = phase_name(kNumbered + posted_[to]++);
  post_to(to, message, head);
}

Expectation Collective::numbered(Expectation expected) {
  expected.name = phase_name(kNumbered + awaited_from_[expected.source]++);
  return expected;
}

std::vector<Arrival> Collective::take_arrivals() {
  std::vector<Arrival> arrivals;
  for (Awaited& awaited : awaited_) arrivals.push_back(std::move(awaited.arrival));
  awaited_.clear();
  return arrivals;
}

void Collective::proceed() {
  if (!complete_) {
    if (!go_on()) return;
    if (!safe_) {
      conclude();
      return;
    }
    complete_ = true;
    awaited_.clear();
    const Outgoing nothing = flock_->fabric->reserve(0);
    post_to_others(nothing, header_for(kHave, DType::uint8, 0));
    for (const Rank member : members())
      if (member != flock_->self()) await(expectation_of(kHave, member, DType::uint8, 0));
    return;
  }
  const bool all = std::all_of(awaited_.begin(), awaited_.end(),
                               [](const Awaited& awaited) { return static_cast<bool>(awaited.arrival); });
  if (all || decide(true)) {
    conclude();
  } else {
    attempt();
  }
}

void Collective::conclude() {
  deliver();
  if (view_->epoch > 0) forget_attempts();
  finish();
}

Operation::Loss Collective::lose(const Awaited& awaited) {
  if (!safe_) return Loss::raise;
  flock_->membership.lost(awaited.expectation.source);
  if (complete_) return Loss::without;
  decide(false);  // no rank can have committed a result that this rank lacks
  attempt();
  return Loss::restarted;
}

void Collective::forget_attempts() const {
  std::uint64_t most = 0;
  for (const auto& [rank, count] : awaited_from_) most = std::max(most, count);
  for (const std::uint64_t phase : kPhases)
    flock_->mailbox.forget(phase_name(phase), sequence_, kind_in_messages());
  for (std::uint64_t number = 0; number < most; ++number)
    flock_->mailbox.forget(phase_name(kNumbered + number), sequence_, kind_in_messages());
}

// Not all ranks exchange with the lost rank. A rank that needs it notifies those that wait for messages which
// it cannot send now.
void Collective::failed(const std::exception_ptr& error) {
  if (safe_) return;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    MessageHeader head = header_for(0, DType::uint8, 0);
    head.kind = static_cast<std::uint16_t>(MessageKind::collective_aborted);
    head.detail = static_cast<std::uint64_t>(lost.peer());
    post_to_others(flock_->fabric->reserve(0), head);
  } catch (...) {
  }
}

// A rank that gave up because of a lost rank may have left since then.
void Collective::find_cause() {
  if (const auto lost = flock_->mailbox.given_up(phase_name(0), sequence_))
    throw PeerLost(*lost, described(), step_, flock_->mailbox.why_left(*lost));
}

void Collective::reconsider() {
  if (ended()) return;
  if (!safe_) {
    find_cause();
    return;
  }
  // A rank that lacks something may always move to a newer view: no rank can have delivered without it.
  const bool left_behind =
      flock_->mailbox.newest_epoch(phase_name(0), sequence_, kind_in_messages()) > view_->epoch ||
      (!complete_ && flock_->membership.newest()->epoch > view_->epoch);
  const auto decided = flock_->fabric->board().agreed(decision_key(view_->epoch));
  if (!left_behind && !decided) return;
  if (decide(false)) {
    if (complete_) conclude();
  } else {
    attempt();
  }
}

std::uint64_t Collective::decision_key(std::uint32_t epoch) const {
  return register_key(kDecision, topic_.hash, sequence_, epoch);
}

bool Collective::decide(bool commit) const {
  return flock_->fabric->board().agree(decision_key(view_->epoch), commit ? 1 : 0) == 1;
}

}  // namespace starling::flock
