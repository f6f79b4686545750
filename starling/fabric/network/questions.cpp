#include "starling/fabric/network/questions.h"

#include <algorithm>

namespace starling::network {
namespace {

constexpr std::chrono::milliseconds kAnswerLook{20};  // whether who was asked still lives

}  // namespace

std::uint64_t Questions::open() {
  const std::lock_guard lock(mutex_);
  questions_[++asked_];
  return asked_;
}

std::optional<Slice> Questions::answer(Rank from, std::uint64_t number, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Question& question = questions_.at(number);
  while (!question.settled) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) break;
    // What it sent before it was lost is here before it is known to be lost.
    lock.unlock();
    const bool dead = !alive_(from);
    lock.lock();
    if (dead) break;
    changed_.wait_until(lock, std::min<Deadline>(deadline, now + kAnswerLook),
                        [&] { return question.settled; });
  }
  std::optional<Slice> answer = std::move(question.answer);
  questions_.erase(number);
  return answer;
}

void Questions::answered(std::uint64_t number, std::optional<Slice> answer) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = questions_.find(number);
    if (found == questions_.end()) return;  // too late, nobody waits
    found->second = {true, std::move(answer)};
  }
  changed_.notify_all();
}

}  // namespace starling::network
