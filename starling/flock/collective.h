#pragma once

#include "starling/fabric/device_messages.h"
#include "starling/flock/operation.h"

namespace starling::flock {

/// An operation of all members of the view: all survivors get the same result, or all throw.
///
/// With OnPeerFailure::reweight a death ends an attempt. Every rank that has the whole result tells all
/// others (`have`) and delivers it when all members have done so. If a member dies first, the register
/// decides: a rank that has the data of all survivors proposes to commit; a rank that lacks something, or
/// sees another rank in a later attempt, proposes to abandon. Then all survivors deliver, or all restart in
/// the newest view from their unchanged inputs.
class Collective : public Operation {
 public:
  /// `memory` is the kind of memory of its messages.
  Collective(MessageKind kind, std::shared_ptr<FlockState> flock, Topic& topic,
             MemoryKind memory = MemoryKind::host);

  /// Starts the operation; call it once.
  void start();

 protected:
  /// The members of this attempt in the flock's order, and this rank's index among them.
  const std::vector<Rank>& members() const { return view_->members; }
  std::size_t place() const { return place_; }

  /// Begins an attempt: posts and awaits messages. Called again if an attempt was abandoned.
  virtual void begin() = 0;
  /// Called when all awaited messages have arrived. Returns true if the result is complete, though not yet
  /// delivered; false after awaiting more messages.
  virtual bool go_on() = 0;
  /// Writes the result to the caller's memory.
  virtual void deliver() = 0;

  MemoryKind memory() const { return memory_; }
  Outgoing reserve(std::size_t bytes) const { return fabric::reserve(*flock_->fabric, bytes, memory_); }
  /// The name of a phase; messages of different phases are matched separately.
  std::uint64_t phase_name(std::uint64_t phase) const { return topic_.hash + phase; }
  MessageHeader header_for(std::uint64_t phase, DType dtype, std::size_t count) const;
  void post_to(Rank to, const OutgoingRange& range, const MessageHeader& header) const;
  void post_to_others(const OutgoingRange& range, const MessageHeader& header) const;
  Expectation expectation_of(std::uint64_t phase, Rank source, DType dtype, std::size_t count) const;
  /// For algorithms in which a pair of ranks exchanges several messages: numbers them.
  void post_numbered(const Outgoing& message, MessageHeader header, Rank to);
  Expectation numbered(Expectation expectation);
  /// Returns the arrivals in the order in which they were awaited, and clears them for the next phase.
  std::vector<Arrival> take_arrivals();

 private:
  void proceed() final;
  Loss lose(const Awaited& awaited) final;
  bool is_collective() const final { return true; }
  void reconsider() final;
  void find_cause() final;
  void failed(const std::exception_ptr& error) final;
  bool others_need_more() const final { return true; }
  void attempt();
  void conclude();
  void forget_attempts() const;
  /// Returns true for "commit"; the first proposal of any rank counts.
  bool decide(bool commit) const;
  std::uint64_t decision_key(std::uint32_t epoch) const;
  MessageKind kind_in_messages() const;

  MemoryKind memory_;
  std::uint64_t sequence_;
  std::shared_ptr<const View> view_;
  std::size_t place_ = 0;
  bool safe_;  // agree with the survivors before delivering
  std::map<Rank, std::uint64_t> posted_;
  std::map<Rank, std::uint64_t> awaited_from_;
  bool complete_ = false;  // the result is complete, but perhaps not the others' `have`
};

}  // namespace starling::flock
