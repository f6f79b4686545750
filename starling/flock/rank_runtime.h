#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "starling/base/forks.h"
#include "starling/flock/mailbox.h"
#include "starling/record/trace.h"

namespace starling::flock {

class Operation;

/// A cycle of waits that a waiting rank has found; see deadlock.h.
struct Suspicion {
  std::uint64_t since = 0;  // identifies the wait in which the cycle was found
  std::uint64_t cycle = 0;
  std::uint64_t confirmed = 0;
  std::string text;
};

/// The state that all flocks of one rank share: the fabric, the mailbox and the operations in flight.
/// Thread-safe.
class RankRuntime {
 public:
  explicit RankRuntime(std::shared_ptr<Fabric> given)
      : recorder(given->rank(), given->size()), fabric(std::move(given)), mailbox(fabric) {}
  ~RankRuntime() { leave_if_device_failed(); }

  Recorder recorder;
  const std::shared_ptr<Fabric> fabric;
  Mailbox mailbox;
  std::atomic<std::chrono::nanoseconds> timeout{std::chrono::seconds(300)};
  std::atomic<bool> interrupted{false};  // `timeout` now limits how long operations in flight may still take
  std::atomic<std::uint64_t> send_limit{std::uint64_t{1} << 30};  // the most unread bytes of a receiver
  std::atomic<std::uint64_t> bytes_sent{0};
  std::atomic<bool> many_threads{false};  // more than one thread has started operations
  std::atomic<bool> told_others{false};   // this rank has published what it waits for
  Suspicion suspicion;                    // used only if a single thread uses the flock

  /// Called first by every operation: throws reported mismatches, and notes the calling thread.
  void enter();
  /// Throws Excluded if this rank is no longer part of the job, or Error if it left because of its device.
  void check_membership() const;
  /// If a device of this process does no more work (Device::failure()), this rank cannot do its part: it
  /// tells the others why, and leaves. Call it when a call of the device has failed.
  void leave_if_device_failed() noexcept;
  /// Notes that this thread starts or waits for operations.
  void note_thread();

  /// Registers an operation of several phases, which also progresses while this rank waits for another one.
  void add_in_flight(const std::shared_ptr<Operation>& operation);
  /// True if one of them awaits a payload.
  bool advance_in_flight(const Operation* except);
  /// Lets the operations in flight check for deaths.
  void look_in_flight(const Operation* except);

 private:
  std::vector<std::shared_ptr<Operation>> in_flight(const Operation* except);

  const int forks_ = forks_so_far();
  mutable std::mutex why_left_mutex_;
  std::string why_left_;
  std::atomic<bool> left_{false};
  std::mutex in_flight_mutex_;
  std::vector<std::weak_ptr<Operation>> in_flight_;
  std::atomic<bool> any_in_flight_{false};
  std::atomic<const void*> first_thread_{nullptr};
};

/// Calls leave_if_device_failed() if an exception ends its scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(RankRuntime& runtime) : runtime_(runtime) {}
  ~DeviceGuard() {
    if (std::uncaught_exceptions() > exceptions_) runtime_.leave_if_device_failed();
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  RankRuntime& runtime_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace starling::flock
