#include "starling/fabric/network/pending_requests.h"

#include <algorithm>

namespace starling::fabric::network {
namespace {

constexpr std::chrono::milliseconds kLivenessCheck{20};

}  // namespace

std::uint64_t PendingRequests::open() {
  const std::lock_guard lock(mutex_);
  open_[++last_number_];
  return last_number_;
}

std::optional<Slice> PendingRequests::wait_for_answer(Rank from, std::uint64_t number, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Request& request = open_.at(number);
  while (!request.answered) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) break;
    // An answer that was sent before the peer died has arrived before alive_ returns false.
    lock.unlock();
    const bool dead = !alive_(from);
    lock.lock();
    if (dead) break;
    changed_.wait_until(lock, std::min<Deadline>(deadline, now + kLivenessCheck),
                        [&] { return request.answered; });
  }
  std::optional<Slice> answer = std::move(request.answer);
  open_.erase(number);
  return answer;
}

void PendingRequests::answered(std::uint64_t number, std::optional<Slice> answer) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(number);
    if (found == open_.end()) return;  // too late: the caller no longer waits
    found->second = {true, std::move(answer)};
  }
  changed_.notify_all();
}

}  // namespace starling::fabric::network
