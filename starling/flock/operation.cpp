#include "starling/flock/operation.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "starling/flock/deadlock.h"
#include "starling/flock/errors.h"
#include "starling/flock/pending.h"
#include "starling/kernel/arithmetic.h"
#include "starling/record/log.h"

namespace starling::flock {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kWarnAfter{5};
constexpr std::chrono::seconds kSuspectAfter{1};  // then this rank publishes what it waits for
constexpr std::chrono::milliseconds kLookEvery{1};
constexpr std::chrono::milliseconds kAbsent{500};
// The pauses between checks for payloads; they grow.
constexpr std::chrono::microseconds kShortestPause{50};
constexpr std::chrono::microseconds kLongestPause{1000};

static_assert(static_cast<int>(RecordKind::average) == static_cast<int>(MessageKind::average) &&
              static_cast<int>(RecordKind::staged_reduction) ==
                  static_cast<int>(MessageKind::staged_reduction));

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Expectation Operation::expectation(Rank source, std::uint64_t sequence, DType dtype, std::size_t count,
                                   MemoryKind memory) const {
  Expectation expected;
  expected.source = source;
  expected.kind = kind_;
  expected.name = topic_.hash;
  expected.sequence = sequence;
  expected.dtype = element_code(dtype, memory);
  expected.count = count;
  expected.bytes = count * size_of(dtype);
  expected.step = step_in_messages_;
  return expected;
}

MessageHeader Operation::header(DType dtype, std::size_t count, MemoryKind memory) const {
  MessageHeader header;
  header.kind = static_cast<std::uint16_t>(kind_);
  header.name = topic_.hash;
  header.dtype = element_code(dtype, memory);
  header.count = count;
  header.step = step_in_messages_;
  return header;
}

void Operation::post(const OutgoingRange& range, MessageHeader header, Rank to) {
  header.sequence = flock_->mailbox.next_to(topic_, to);
  note_sent(to, header.name, header.sequence);
  flock_->fabric->post(range, header, to);
  sent(range.size());
}

Term Operation::term_of(const Arrival& arrival, DType dtype, std::size_t count, std::size_t offset) const {
  if (awaits_payloads_) return {arrival.buffer(dtype, count, offset), 1};
  Term term = arrival.term(dtype, count, offset, 1);
  term.required = true;
  return term;
}

void Operation::copy_term(Buffer out, const Term& term) {
  const Arithmetic& arithmetic = arithmetic_in(out.memory);
  term.flag != nullptr ? arithmetic.combine(out, {&term, 1}) : arithmetic.copy(out, out.at(term.data));
}

void Operation::finish() {
  awaited_.clear();  // releases the messages that were lent
  finish_lending();
  trace_.end_on_device();
}

void Operation::drop() {
  const std::lock_guard lock(mutex_);
  for (const Awaited& awaited : awaited_)
    if (awaited.missing()) flock_->mailbox.refuse(awaited.expectation);
  if (!ended()) return finish();
  awaited_.clear();
  trace_.end_on_device();  // what was lent has been read by the work enqueued so far
}

void Operation::finish_lending() {
  trace_.end(error_ != nullptr);
  ended_.store(true, std::memory_order_release);
}

void Operation::fail(std::exception_ptr error) {
  error_ = std::move(error);
  flock_->runtime->leave_if_device_failed();
  failed(error_);
  for (const Awaited& awaited : awaited_) flock_->mailbox.raised(awaited.expectation, awaited.missing());
  for (const SentMessage& message : sent_messages_)
    flock_->mailbox.raised(message.to, message.name, message.number);
  finish();
  dump_losses(*flock_->runtime, error_);
}

bool Operation::settle_some(std::size_t first, std::size_t last) {
  bool all = true;
  bool payloads_missing = false;
  for (std::size_t i = first; i < last; ++i) {
    Awaited& awaited = awaited_[i];
    if (awaited.settled) continue;
    if (!awaited.arrival) {
      auto arrival = flock_->mailbox.take(awaited.expectation, topic_);
      if (!arrival) {
        all = false;
        continue;
      }
      something_came_.store(true, std::memory_order_relaxed);
      if (arrival->lost()) {
        awaited.settled = true;
        continue;
      }
      awaited.arrival = std::move(*arrival);
      trace_.bytes(awaited.arrival.size());
    }
    if (needs_payloads() && !awaited.arrival.complete()) {
      payloads_missing = true;
      continue;
    }
    awaited.settled = true;
    something_came_.store(true, std::memory_order_relaxed);
  }
  awaits_payload_.store(payloads_missing, std::memory_order_relaxed);
  return all && !payloads_missing;
}

bool Operation::advance_locked() {
  const kernel::DeviceScope scope(context_);
  try {
    while (!ended() && settle()) proceed();
  } catch (...) {
    fail(std::current_exception());
  }
  return ended();
}

bool Operation::advance() {
  if (ended()) return true;
  const std::lock_guard lock(mutex_);
  return ended() || advance_locked();
}

void Operation::advance_if_idle() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && !ended()) advance_locked();
}

void Operation::look_if_idle() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || ended()) return;
  const kernel::DeviceScope scope(context_);
  try {
    check_losses();
    reconsider();
  } catch (...) {
    fail(std::current_exception());
  }
  if (!ended()) advance_locked();
}

std::vector<Rank> Operation::missing_sources() {
  const std::lock_guard lock(mutex_);
  std::vector<Rank> missing;
  for (const Awaited& awaited : awaited_)
    if (awaited.missing()) missing.push_back(awaited.expectation.source);
  return missing;
}

// A rank that loses a peer usually leaves, too, and so on, so all ranks name the rank that was lost first.
Rank Operation::first_loss(Rank lost) const {
  constexpr std::uint64_t kFirstLoss = 0x6C6F7373;
  try {
    return static_cast<Rank>(flock_->fabric->board().agree(register_key(kFirstLoss, 0), lost));
  } catch (const Error&) {
    return lost;  // the lost rank may have held the register
  }
}

// A peer that died after posting what this rank waits for is not lost, so this checks for messages once more
// after the death. The peer's device writes nothing any more by then.
void Operation::check_losses() {
  // a check takes a system call, and a long operation awaits many messages from one source
  std::map<Rank, bool> alive;
  for (std::size_t i = 0; i < awaited_.size(); ++i) {
    if (awaited_[i].settled) continue;
    const Rank source = awaited_[i].expectation.source;
    if (alive.try_emplace(source, alive.contains(source) || flock_->fabric->alive(source)).first->second)
      continue;
    settle_some(0, awaited_.size());
    // A message that has just arrived may still need something from the source, which counts as alive until
    // then.
    if (awaited_[i].settled || flock_->fabric->alive(source)) continue;
    const Rank rank = awaited_[i].expectation.source;
    switch (lose(awaited_[i])) {
      case Loss::raise: {
        raise_known_deadlock(*flock_, waiting_since_);  // other ranks of the deadlock may have left already
        find_cause();
        const Rank first = first_loss(rank);
        throw PeerLost(rank, described(), step_, first, flock_->mailbox.why_left(first));
      }
      case Loss::without:
        awaited_[i].arrival = {};
        awaited_[i].settled = true;
        break;
      case Loss::restarted:
        return;
    }
  }
}

Operation::Loss Operation::lose(const Awaited& awaited) {
  if (!flock_->reweighting()) return Loss::raise;
  flock_->membership.lost(awaited.expectation.source);
  return Loss::without;
}

std::string Operation::why_it_waits(const Awaited& awaited) {
  const Expectation& expected = awaited.expectation;
  if (awaited.arrival)
    return fmt::format("The device of rank {} has not finished what it sends.", expected.source);
  std::string text = what_it_does(*flock_, expected.source);
  if (is_collective() && !expected.later_phase)
    text += fmt::format(" {} is collective: call it on every rank.",
                        topic_.call ? topic_.call->call : topic_.text);
  return text;
}

// If a message arrives slowly, each part of it counts as progress.
void Operation::note_progress() {
  std::uint64_t bytes = 0;
  Rank last = -1;
  for (const Awaited& awaited : awaited_)
    if (!awaited.settled && std::exchange(last, awaited.expectation.source) != awaited.expectation.source)
      bytes += flock_->fabric->bytes_from(awaited.expectation.source);
  if (std::exchange(bytes_seen_, bytes) < bytes) waiting_since_ = looked_;
}

void Operation::check_time(Wait wait) {
  const auto missing =
      std::find_if(awaited_.begin(), awaited_.end(), [](const Awaited& awaited) { return !awaited.settled; });
  if (missing == awaited_.end()) return;
  const auto waited = looked_ - waiting_since_;
  const Expectation& expected = missing->expectation;
  if (waited > flock_->runtime->timeout.load())
    throw TimedOut(
        fmt::format("{} waited {:.1f} s for rank {}{}. {}", described(), seconds(waited), expected.source,
                    flock_->runtime->interrupted ? " and was interrupted" : ", longer than the timeout",
                    why_it_waits(*missing)));
  if (waited > kSuspectAfter) {
    flock_->runtime->leave_if_device_failed();  // the others may wait for what it should have written
    flock_->runtime->check_membership();
  }
  // A rank that polls, or waits for a limited time, may still send what others wait for.
  if (waited > kSuspectAfter && wait != Wait::poll)
    look_for_deadlock(*flock_, expected, described(), waiting_since_, wait == Wait::forever);
  if (waited > kWarnAfter && !warned_) {
    warned_ = true;
    log(LogLevel::normal,
        fmt::format("rank {} has been waiting {:.0f} s for rank {} in {}. {}", flock_->self(),
                    seconds(waited), expected.source, described(), why_it_waits(*missing)));
  }
}

// Checks that are too slow for every look at messages.
void Operation::look_around(Wait wait) {
  const std::lock_guard lock(mutex_);
  if (ended()) return;
  const kernel::DeviceScope scope(context_);
  try {
    flock_->runtime->check_membership();
    if (!others_need_more()) flock_->mailbox.raise_reported_mismatch();
    check_losses();
    reconsider();
    if (ended()) return;
    note_progress();
    check_time(wait);
  } catch (...) {
    fail(std::current_exception());
  }
}

bool Operation::wait_until(Deadline deadline, bool comes_back) {
  if (advance()) return true;
  flock_->runtime->note_thread();
  WaitNote note(*flock_);  // withdraws the published wait on every exit
  // No message wakes this rank if known-dead peers are awaited, so check them first.
  if (flock_->reweighting() && flock_->membership.newest()->epoch > 0) look_around(Wait::limited);
  for (auto pause = kShortestPause;;) {
    const std::uint32_t ticket = flock_->fabric->wake_count();
    const bool others_await_payloads = flock_->runtime->advance_in_flight(this);
    if (advance()) return true;
    if (deadline != Deadline::max() && Clock::now() >= deadline) {
      if (comes_back) note.keep();
      return false;
    }
    Deadline until = deadline;
    if (others_await_payloads || awaits_payload()) {
      until = std::min(deadline, Clock::now() + pause);
      pause = std::min(2 * pause, kLongestPause);
    } else {
      pause = kShortestPause;
    }
    const std::uint64_t asleep = trace_.wait_begins();
    flock_->fabric->sleep(ticket, missing_sources(), until);
    trace_.wait_ends(asleep);
    if (advance()) return true;
    look_now_and_then(comes_back || deadline == Deadline::max() ? Wait::forever : Wait::limited);
  }
}

void Operation::look_now_and_then(Wait wait) {
  flock_->mailbox.drain_all();
  const auto now = Clock::now();
  // The time starts again with every message, because slow links are no reason to warn. A thread that has not
  // checked for long was busy elsewhere and did not wait.
  if (something_came_.exchange(false, std::memory_order_relaxed) || now - looked_ > kAbsent)
    waiting_since_ = now;
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  look_around(wait);
  flock_->runtime->look_in_flight(this);
  looked_ = Clock::now();
}

bool Operation::look() {
  flock_->runtime->advance_in_flight(this);
  if (advance()) return true;
  look_now_and_then(Wait::poll);
  return advance();
}

void Operation::raise() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

Pending& Pending::operator=(Pending&& other) noexcept {
  std::swap(operation_, other.operation_);
  return *this;
}

Pending::~Pending() {
  try {
    if (operation_) operation_->wait_until(Deadline::max());
  } catch (...) {
    // Only a forked child gets here; it has nothing to wait for.
  }
}

bool Pending::ready() {
  return !operation_ || operation_->look();
}

void Pending::wait() {
  if (!operation_) return;
  operation_->wait_until(Deadline::max());
  const auto operation = std::move(operation_);
  operation->raise();
}

bool Pending::wait_for(std::chrono::nanoseconds duration) {
  return wait_part(duration, false);
}

bool Pending::wait_on(std::chrono::nanoseconds duration) {
  return wait_part(duration, true);
}

bool Pending::wait_part(std::chrono::nanoseconds duration, bool comes_back) {
  if (!operation_) return true;
  const auto now = Clock::now();
  if (!operation_->wait_until(duration < Deadline::max() - now ? now + duration : Deadline::max(),
                              comes_back))
    return false;
  wait();
  return true;
}

void Pending::pause() {
  if (operation_) operation_->wait_until(Clock::now());  // withdraws the published wait
}

void Pending::forget() {
  if (!operation_) return;
  operation_->advance();  // takes the messages that have arrived already
  operation_->drop();
  operation_.reset();
}

void Pending::abandon() {
  new std::shared_ptr<Operation>(std::move(operation_));  // never waited for and never freed
}

}  // namespace starling::flock
