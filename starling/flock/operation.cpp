#include "starling/flock/operation.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

#include "starling/flock/errors.h"
#include "starling/flock/pending.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kWarnAfter{5};

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void Operation::expect(std::vector<Expectation> expectations, Then then) {
  expectations_ = std::move(expectations);
  arrivals_.clear();
  arrivals_.resize(expectations_.size());
  here_.assign(expectations_.size(), false);
  missing_ = expectations_.size();
  then_ = std::move(then);
}

// True when something happened.
bool Operation::step_forward() {
  bool moved = false;
  for (std::size_t i = 0; i < expectations_.size(); ++i) {
    if (here_[i]) continue;
    auto arrival = mailbox_->take(expectations_[i], name_);
    if (!arrival) continue;
    arrivals_[i] = std::move(*arrival);
    here_[i] = true;
    --missing_;
    moved = true;
  }
  if (missing_ > 0) return moved;
  if (!then_) {
    ended_ = true;
    return true;
  }
  const Then then = std::move(then_);
  then_ = nullptr;
  Arrivals arrivals = std::move(arrivals_);
  expectations_.clear();
  here_.clear();
  then(arrivals);
  return true;
}

// A peer that died after posting what we wait for is no loss, so the messages are looked at once more after
// its death.
void Operation::check_peers() {
  std::vector<Rank> gone;
  for (std::size_t i = 0; i < expectations_.size(); ++i)
    if (!here_[i] && !mailbox_->fabric().alive(expectations_[i].source))
      gone.push_back(expectations_[i].source);
  if (gone.empty()) return;
  step_forward();
  for (std::size_t i = 0; i < expectations_.size(); ++i)
    for (const Rank rank : gone)
      if (!here_[i] && expectations_[i].source == rank) throw PeerLost(rank, name_, step_);
}

bool Operation::advance() {
  const std::lock_guard lock(mutex_);
  if (ended_) return true;
  try {
    while (!ended_ && step_forward()) {
    }
    if (!ended_) {
      mailbox_->raise_complaints();
      check_peers();
      const auto waited = Clock::now() - started_;
      const Rank peer = expectations_.empty()
                            ? 0
                            : expectations_[static_cast<std::size_t>(
                                                std::find(here_.begin(), here_.end(), false) - here_.begin())]
                                  .source;
      if (waited > timeout_)
        throw TimedOut(fmt::format("{} (step {}) waited {:.1f} s for rank {}, longer than the timeout", name_,
                                   step_, seconds(waited), peer));
      if (waited > kWarnAfter && !warned_) {
        warned_ = true;
        fmt::print(stderr, "starling: rank {} has waited {:.0f} s for rank {} in {} (step {})\n",
                   mailbox_->fabric().rank(), seconds(waited), peer, name_, step_);
      }
    }
  } catch (...) {
    error_ = std::current_exception();
    ended_ = true;
  }
  if (ended_) {
    arrivals_.clear();  // what was lent goes back
    then_ = nullptr;    // it may hold this operation itself
  }
  return ended_;
}

bool Operation::wait_until(Deadline deadline) {
  for (;;) {
    const std::uint32_t ticket = mailbox_->fabric().ticket();
    if (advance()) return true;
    const auto now = Clock::now();
    if (now >= deadline) return false;
    mailbox_->fabric().sleep(ticket, std::min(deadline, now + std::chrono::milliseconds(50)));
  }
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
  if (operation_) operation_->wait_until(Deadline::max());
}

bool Pending::ready() {
  return !operation_ || operation_->advance();
}

void Pending::wait() {
  if (!operation_) return;
  operation_->wait_until(Deadline::max());
  const auto operation = std::move(operation_);
  operation->raise();
}

bool Pending::wait_for(std::chrono::nanoseconds duration) {
  if (!operation_) return true;
  if (!operation_->wait_until(Clock::now() + duration)) return false;
  wait();
  return true;
}

}  // namespace starling
