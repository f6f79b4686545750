#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "starling/flock/block.h"
#include "starling/flock/flock_state.h"
#include "starling/kernel/device.h"

namespace starling::flock {

/// An operation between its start and its end: it posts, awaits messages and continues when all messages of a
/// phase are there. There is no thread behind it: the waiting thread does the work. Results are written when
/// no error is possible any more, so an error leaves the caller's blocks as they were (but see LongAverage).
/// Work on device memory is enqueued on the stream of the thread that makes it, whichever thread continues
/// it.
class Operation {
 public:
  /// `step` is one of a schedule's; operations without a schedule have none.
  Operation(MessageKind kind, std::shared_ptr<FlockState> flock, Topic& topic,
            std::optional<Step> step = std::nullopt)
      : kind_(kind),
        flock_(std::move(flock)),
        topic_(topic),
        step_(step.value_or(0)),
        step_in_messages_(step_),
        has_step_(step.has_value()),
        trace_(flock_->runtime->recorder, {topic.text, topic.recorded}, static_cast<RecordKind>(kind),
               topic.record_step(step)) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Progress as far as messages are there; true when the operation has ended.
  bool advance();
  /// The same unless another thread is doing it.
  void advance_if_idle();
  /// For operations in flight that no thread waits for now: handles deaths and decisions.
  void look_if_idle();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  /// Whether a message has come whose payload is still being written; nothing wakes a sleeper when it is.
  bool awaits_payload() const { return awaits_payload_.load(std::memory_order_relaxed); }
  /// One look at everything, deaths and time included, without waiting; true when it has ended.
  bool look();
  /// Waits until it has ended or the deadline has passed; true when it has ended. `comes_back`: the
  /// caller will wait again, so that the wait may be part of a deadlock.
  bool wait_until(Deadline deadline, bool comes_back = false);
  /// Throws what went wrong, if anything.
  void raise() const;
  /// Gives back what has arrived; what has not is not waited for any more.
  void drop();

  const std::string& name() const { return topic_.text; }
  /// What messages call it: the user's call, with its step.
  std::string described() const {
    return topic_.described(has_step_ ? std::optional<Step>(step_) : std::nullopt);
  }

 protected:
  struct Awaited {
    Expectation expectation;
    Arrival arrival;
    bool settled = false;  // arrived as far as it must, or given up

    /// Whether no message has come, and one may.
    bool missing() const { return !settled && !arrival; }
  };
  /// What to do about a source that died without sending.
  enum class Loss { raise, without, restarted };

  /// Takes what has come; true when everything has settled.
  virtual bool settle() { return settle_some(0, awaited_.size()); }
  bool settle_some(std::size_t first, std::size_t last);
  /// Whether a message has arrived only when its payload is complete: then a payload that its sender has left
  /// unfinished is a loss like a message that was never sent.
  virtual bool needs_payloads() const { return true; }
  /// All that was awaited has settled: await more, or finish().
  virtual void proceed() = 0;

  virtual Loss lose(const Awaited& awaited);
  /// Others wait for what this rank sends in a later phase: a complaint about something else must not end it.
  virtual bool others_need_more() const { return false; }
  /// All ranks of the flock must call it.
  virtual bool is_collective() const { return false; }
  /// A source is lost: throws where this has a cause that the user should see instead.
  virtual void find_cause() {}
  /// The operation has failed: others may have to know.
  virtual void failed(const std::exception_ptr&) {}
  /// Called now and then while no message arrives.
  virtual void reconsider() {}

  Expectation expectation(Rank source, std::uint64_t sequence, DType dtype, std::size_t count,
                          MemoryKind memory = MemoryKind::host) const;
  void await(const Expectation& expectation) {
    awaited_.push_back({expectation, {}, false});
    trace_.peer(expectation.source, expectation.later_phase);
  }
  void finish();
  /// Ends it, but keeps what has arrived until drop().
  void finish_lending();

  MessageHeader header(DType dtype, std::size_t count, MemoryKind memory = MemoryKind::host) const;
  /// Message `number` under `name` went to this rank: once the operation has failed, that rank's report about
  /// it is ignored.
  void note_told(Rank to, std::uint64_t name, std::uint64_t number) { told_.push_back({to, name, number}); }
  /// Posts under the topic's own count for `to`.
  void post(const OutgoingRange& range, MessageHeader header, Rank to);

  const MessageKind kind_;
  const std::shared_ptr<FlockState> flock_;
  Topic& topic_;
  Step step_;
  Step step_in_messages_;  // both ends must name the same
  const bool has_step_;    // step_ is one of a schedule's
  std::vector<Awaited> awaited_;
  /// So many bytes have gone to others.
  void sent(std::size_t bytes) const {
    trace_.bytes(bytes);
    flock_->runtime->bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  }

  mutable Trace trace_;  // sending changes nothing but this

 private:
  bool advance_locked();
  enum class Wait { poll, limited, forever };
  void look_around(Wait wait);
  void look_now_and_then(Wait wait);
  void check_losses();
  Rank first_loss(Rank lost) const;
  void note_progress();
  void check_time(Wait wait);
  /// What the source does instead of sending it.
  std::string why_it_waits(const Awaited& awaited);
  void fail(std::exception_ptr error);
  std::vector<Rank> missing_sources();

  const kernel::DeviceContext context_ = kernel::device_context();
  struct Told {
    Rank to;
    std::uint64_t name;
    std::uint64_t number;
  };
  std::vector<Told> told_;
  mutable std::mutex mutex_;
  std::atomic<bool> ended_{false};
  std::exception_ptr error_;
  std::atomic<bool> something_came_{true};  // since the last look
  std::atomic<bool> awaits_payload_{false};
  Deadline waiting_since_{};
  Deadline looked_{};
  std::uint64_t bytes_seen_ = 0;  // from those that are waited for
  bool warned_ = false;
};

}  // namespace starling::flock
