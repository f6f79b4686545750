#include "starling/flock/rank_runtime.h"

#include <cstring>
#include <fmt/format.h>

#include "starling/flock/errors.h"
#include "starling/flock/operation.h"
#include "starling/kernel/device.h"
#include "starling/record/log.h"

namespace starling::flock {

void RankRuntime::note_thread() {
  thread_local const char here = 0;
  const void* first = nullptr;
  if (!first_thread_.compare_exchange_strong(first, &here, std::memory_order_relaxed) && first != &here)
    many_threads.store(true, std::memory_order_relaxed);
}

void RankRuntime::check_membership() const {
  if (const std::string why = fabric->exclusion_reason(); !why.empty()) throw Excluded(why);
  if (!left_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(why_left_mutex_);
  throw Error(fmt::format("rank {} has left: {}", fabric->rank(), why_left_));
}

void RankRuntime::leave_if_device_failed() noexcept {
  if (forks_so_far() != forks_) return;  // the device is the parent's, and so is the rank
  try {
    const std::string failure = kernel::device_failure();
    if (failure.empty()) return;
    const std::lock_guard lock(why_left_mutex_);
    if (left_.load(std::memory_order_relaxed)) return;
    why_left_ = "its device failed: " + failure;
    left_.store(true, std::memory_order_release);
    log(LogLevel::normal, fmt::format("rank {} leaves: {}", fabric->rank(), why_left_));
    const Outgoing message = fabric->reserve(why_left_.size());
    std::memcpy(message.bytes().data(), why_left_.data(), why_left_.size());
    MessageHeader header;
    header.kind = static_cast<std::uint16_t>(MessageKind::device_failed);
    for (Rank rank = 0; rank < fabric->size(); ++rank)
      if (rank != fabric->rank()) fabric->post(message, header, rank);
  } catch (const std::exception& error) {
    if (left_.load(std::memory_order_acquire))
      log(LogLevel::normal,
          fmt::format("rank {} could not tell the others why it leaves: {}", fabric->rank(), error.what()));
  }
  if (left_.load(std::memory_order_acquire)) fabric->leave();
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
