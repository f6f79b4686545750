#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "starling/flock/mailbox.h"

namespace starling {

/// An operation between its start and its end: waits for messages, and when all of a phase are there, goes
/// on. Whoever waits, works: there is no thread behind it.
class Operation {
 public:
  using Arrivals = std::vector<Arrival>;  // in the order of the expectations
  using Then = std::function<void(Arrivals&)>;

  Operation(std::shared_ptr<Mailbox> mailbox, std::string name, Step step, std::chrono::nanoseconds timeout)
      : mailbox_(std::move(mailbox)),
        name_(std::move(name)),
        step_(step),
        timeout_(timeout),
        started_(std::chrono::steady_clock::now()) {}

  /// What to wait for next and what to do then; `then` may expect again.
  void expect(std::vector<Expectation> expectations, Then then);

  /// One round of progress; true when the operation has ended.
  bool advance();
  /// Waits until it has ended or the deadline has passed; true when it has ended.
  bool wait_until(Deadline deadline);
  /// Throws what went wrong, if anything.
  void raise() const;

  const std::string& name() const { return name_; }
  Mailbox& mailbox() const { return *mailbox_; }

 private:
  bool step_forward();
  void check_peers();

  std::shared_ptr<Mailbox> mailbox_;
  std::string name_;
  Step step_;
  std::chrono::nanoseconds timeout_;
  Deadline started_;
  bool warned_ = false;

  mutable std::mutex mutex_;
  std::vector<Expectation> expectations_;
  Arrivals arrivals_;
  std::vector<bool> here_;
  std::size_t missing_ = 0;
  Then then_;
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace starling
