#include "starling/flock/rank_runtime.h"

#include "starling/flock/errors.h"
#include "starling/flock/operation.h"

namespace starling::flock {

void RankRuntime::note_thread() {
  thread_local const char here = 0;
  const void* first = nullptr;
  if (!first_thread_.compare_exchange_strong(first, &here, std::memory_order_relaxed) && first != &here)
    many_threads.store(true, std::memory_order_relaxed);
}

void RankRuntime::check_membership() const {
  if (const std::string why = fabric->exclusion_reason(); !why.empty()) throw Excluded(why);
}

void RankRuntime::enter() {
  note_thread();
  check_membership();
  mailbox.drain_all();
  mailbox.raise_reported_mismatch();
}

void RankRuntime::add_in_flight(const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(in_flight_mutex_);
  in_flight_.push_back(operation);
  any_in_flight_ = true;
}

std::vector<std::shared_ptr<Operation>> RankRuntime::in_flight(const Operation* except) {
  std::vector<std::shared_ptr<Operation>> live;
  if (!any_in_flight_.load(std::memory_order_relaxed)) return live;
  const std::lock_guard lock(in_flight_mutex_);
  std::erase_if(in_flight_, [&](const std::weak_ptr<Operation>& entry) {
    auto operation = entry.lock();
    if (!operation || operation->ended()) return true;
    if (operation.get() != except) live.push_back(std::move(operation));
    return false;
  });
  any_in_flight_ = !in_flight_.empty();
  return live;
}

bool RankRuntime::advance_in_flight(const Operation* except) {
  bool payloads = false;
  for (const auto& operation : in_flight(except)) {
    operation->advance_if_idle();
    payloads = payloads || (!operation->ended() && operation->awaits_payload());
  }
  return payloads;
}

void RankRuntime::look_in_flight(const Operation* except) {
  for (const auto& operation : in_flight(except)) operation->look_if_idle();
}

}  // namespace starling::flock
