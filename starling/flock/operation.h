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

/// An operation from its start to its end: it posts, awaits messages, and continues when all messages of a
/// phase have arrived. No thread runs behind it: the waiting thread does the work. Results are written when
/// no error is possible any more, so an error leaves the caller's blocks unchanged (except for LongAverage).
/// Work on device memory is enqueued on the stream of the thread that created the operation, whichever thread
/// continues it.
class Operation {
 public:
  /// `step` is a step of a schedule; empty for operations without one. `memory`: of the blocks.
  Operation(MessageKind kind, std::shared_ptr<FlockState> flock, Topic& topic, std::optional<Step> step,
            MemoryKind memory)
      : kind_(kind),
        flock_(std::move(flock)),
        topic_(topic),
        step_(step.value_or(0)),
        step_in_messages_(step_),
        has_step_(step.has_value()),
        trace_(flock_->runtime->recorder, {topic.text, topic.recorded}, static_cast<RecordKind>(kind),
               topic.record_step(step), memory) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Makes progress as far as messages have arrived; true when the operation has ended.
  bool advance();
  /// Calls advance() unless another thread is doing so.
  void advance_if_idle();
  /// For operations in flight that no thread waits for at present: handles deaths and decisions.
  void look_if_idle();
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  /// Whether a message has arrived whose payload is still being written. Its completion wakes no sleeping
  /// thread.
  bool awaits_payload() const { return awaits_payload_.load(std::memory_order_relaxed); }
  /// Checks everything once, including deaths and time, without waiting; true when the operation has ended.
  bool look();
  /// Waits until the operation has ended or the deadline has passed; true if it has ended. `comes_back`: the
  /// caller will wait again, so the wait may be part of a deadlock.
  bool wait_until(Deadline deadline, bool comes_back = false);
  /// Call it before the operation starts: it then ends when the payloads of its messages have arrived.
  void await_payloads() { awaits_payloads_ = true; }
  /// Throws the operation's error, if any.
  void raise() const;
  /// Releases the messages that have arrived and stops waiting for the others.
  void drop();

  const std::string& name() const { return topic_.text; }
  /// The text by which messages name the operation: the user's call, with its step.
  std::string described() const {
    return topic_.described(has_step_ ? std::optional<Step>(step_) : std::nullopt);
  }

 protected:
  struct Awaited {
    Expectation expectation;
    Arrival arrival;
    bool settled = false;  // arrived as far as needed, or given up

    /// Whether no message has arrived yet, and one may.
    bool missing() const { return !settled && !arrival; }
  };
  /// How to continue if a source died without sending.
  enum class Loss { raise, without, restarted };

  /// Takes the messages that have arrived; true when all awaited messages have settled.
  virtual bool settle() { return settle_some(0, awaited_.size()); }
  bool settle_some(std::size_t first, std::size_t last);
  /// Whether a message counts as arrived only when its payload is complete. Then an unfinished payload of a
  /// dead sender is a loss, like a message that was never sent.
  virtual bool needs_payloads() const { return awaits_payloads_; }
  /// For operations that read messages as term_of() only. In device memory they then end when the headers
  /// have arrived, and the device waits for the payloads: if a rank dies in between, what needs its payload
  /// becomes NaN, and the next operation throws. Survivors that continue need to know on the host what has
  /// arrived.
  void leave_payloads_to_device(MemoryKind memory) {
    awaits_payloads_ = memory == MemoryKind::host || flock_->reweighting();
  }
  /// `count` elements from byte `offset` on of a message, with the weight 1.
  Term term_of(const Arrival& arrival, DType dtype, std::size_t count, std::size_t offset = 0) const;
  /// out <- the elements of such a term.
  static void copy_term(Buffer out, const Term& term);
  /// Called when all awaited messages have settled: await more, or call finish().
  virtual void proceed() = 0;

  virtual Loss lose(const Awaited& awaited);
  /// Whether others wait for what this rank sends in a later phase, so that a mismatch of another operation
  /// must not end this one.
  virtual bool others_need_more() const { return false; }
  /// Whether all ranks of the flock must call it.
  virtual bool is_collective() const { return false; }
  /// A source is lost: throws an error that explains the loss better to the user, if there is one.
  virtual void find_cause() {}
  /// Called when the operation has failed, in case other ranks must be notified.
  virtual void failed(const std::exception_ptr&) {}
  /// Called from time to time while no message arrives.
  virtual void reconsider() {}

  Expectation expectation(Rank source, std::uint64_t sequence, DType dtype, std::size_t count,
                          MemoryKind memory = MemoryKind::host) const;
  void await(const Expectation& expectation) {
    awaited_.push_back({expectation, {}, false});
    trace_.peer(expectation.source, expectation.later_phase);
  }
  void finish();
  /// Ends the operation, but keeps the arrived messages until drop().
  void finish_lending();

  MessageHeader header(DType dtype, std::size_t count, MemoryKind memory = MemoryKind::host) const;
  /// Records that message `number` under `name` was sent to this rank. If the operation fails, that rank's
  /// report about the message is ignored.
  void note_sent(Rank to, std::uint64_t name, std::uint64_t number) {
    sent_messages_.push_back({to, name, number});
  }
  /// Posts with the topic's next number for `to`.
  void post(const OutgoingRange& range, MessageHeader header, Rank to);

  const MessageKind kind_;
  const std::shared_ptr<FlockState> flock_;
  Topic& topic_;
  Step step_;
  Step step_in_messages_;  // both ends must use the same step
  const bool has_step_;    // step_ is a step of a schedule
  std::vector<Awaited> awaited_;
  /// Counts bytes sent to other ranks.
  void sent(std::size_t bytes) const {
    trace_.bytes(bytes);
    flock_->runtime->bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  }

  mutable Trace trace_;  // mutable, because sending changes only the trace

 private:
  bool advance_locked();
  enum class Wait { poll, limited, forever };
  void look_around(Wait wait);
  void look_now_and_then(Wait wait);
  void check_losses();
  Rank first_loss(Rank lost) const;
  void note_progress();
  void check_time(Wait wait);
  /// What the source does instead of sending the message.
  std::string why_it_waits(const Awaited& awaited);
  void fail(std::exception_ptr error);
  std::vector<Rank> missing_sources();

  const kernel::DeviceContext context_ = kernel::device_context();
  struct SentMessage {
    Rank to;
    std::uint64_t name;
    std::uint64_t number;
  };
  std::vector<SentMessage> sent_messages_;
  mutable std::mutex mutex_;
  std::atomic<bool> ended_{false};
  std::exception_ptr error_;
  std::atomic<bool> something_came_{true};  // since the last check
  bool awaits_payloads_ = true;
  std::atomic<bool> awaits_payload_{false};  // at present
  Deadline waiting_since_{};
  Deadline looked_{};
  std::uint64_t bytes_seen_ = 0;  // from the awaited sources
  bool warned_ = false;
};

}  // namespace starling::flock
