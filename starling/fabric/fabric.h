#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "starling/fabric/board.h"
#include "starling/fabric/door.h"
#include "starling/fabric/message.h"

namespace starling {

using Deadline = std::chrono::steady_clock::time_point;

/// Outgoing memory: written in place, then posted to any number of ranks. Once posted it is only read, and
/// can be read here too, until this is dropped; readers elsewhere keep it as long as they need it.
class Outgoing {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void give_back(void* handle) noexcept = 0;
  };

  Outgoing() = default;
  Outgoing(Owner* owner, void* handle, std::span<std::byte> bytes)
      : owner_(owner), handle_(handle), bytes_(bytes) {}
  Outgoing(Outgoing&& other) noexcept { swap(other); }
  Outgoing& operator=(Outgoing&& other) noexcept {
    Outgoing(std::move(other)).swap(*this);
    return *this;
  }
  ~Outgoing() {
    if (owner_ != nullptr) owner_->give_back(handle_);
  }

  std::span<std::byte> bytes() const { return bytes_; }
  explicit operator bool() const { return owner_ != nullptr; }
  /// For fabrics.
  void* handle() const { return handle_; }

 private:
  void swap(Outgoing& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(handle_, other.handle_);
    std::swap(bytes_, other.bytes_);
  }
  Owner* owner_ = nullptr;
  void* handle_ = nullptr;
  std::span<std::byte> bytes_;
};

/// A range of outgoing memory, or all of it: what is posted.
class OutgoingRange {
 public:
  // Implicit: all of it is a range, too.
  OutgoingRange(const Outgoing& message) : OutgoingRange(message, 0, message.bytes().size()) {}
  OutgoingRange(const Outgoing& message, std::size_t offset, std::size_t bytes)
      : handle_(message.handle()), offset_(offset), bytes_(message.bytes().subspan(offset, bytes)) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  /// For fabrics.
  void* handle() const { return handle_; }
  std::size_t offset() const { return offset_; }

 private:
  void* handle_;
  std::size_t offset_;
  std::span<const std::byte> bytes_;
};

/// A message that came in: a read-only view, lent until this is dropped.
class Arrival {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void done_with(void* handle) noexcept = 0;
  };

  Arrival() = default;
  Arrival(Owner* owner, Rank source, void* handle, const MessageHeader& header,
          std::span<const std::byte> bytes)
      : owner_(owner), source_(source), handle_(handle), header_(header), bytes_(bytes) {}
  Arrival(Arrival&& other) noexcept { swap(other); }
  Arrival& operator=(Arrival&& other) noexcept {
    Arrival(std::move(other)).swap(*this);
    return *this;
  }
  ~Arrival() {
    if (owner_ != nullptr) owner_->done_with(handle_);
  }

  explicit operator bool() const { return owner_ != nullptr; }
  Rank source() const { return source_; }
  const MessageHeader& header() const { return header_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// For fabrics that wrap others, where ranks have other numbers.
  void set_source(Rank source) { source_ = source; }
  /// A fabric that loses messages may tell: only the header has arrived.
  bool lost() const { return lost_; }
  void lose() {
    lost_ = true;
    bytes_ = {};
  }

 private:
  void swap(Arrival& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(source_, other.source_);
    std::swap(handle_, other.handle_);
    std::swap(header_, other.header_);
    std::swap(bytes_, other.bytes_);
    std::swap(lost_, other.lost_);
  }
  Owner* owner_ = nullptr;
  bool lost_ = false;
  Rank source_ = 0;
  void* handle_ = nullptr;
  MessageHeader header_;
  std::span<const std::byte> bytes_;
};

class Collectives;
class Services;

/// Moves messages between ranks and promises order per pair, nothing else: it knows no weights, names or
/// matching rules. All functions may be called from several threads at once.
class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;

  /// Memory for a message of this size. Never blocks; throws when the limit is reached, naming who holds
  /// views.
  virtual Outgoing reserve(std::size_t bytes) = 0;
  /// Sends what was written, or a range of it, to one other rank, who sees exactly these bytes: on a network
  /// they all travel. Never blocks; a message to a dead rank goes nowhere.
  virtual void post(const OutgoingRange& range, const MessageHeader& header, Rank to) = 0;
  /// Whether `to` has not read more than so many bytes of what was posted to it, as far as this fabric knows.
  virtual bool backlogged(Rank /*to*/, std::uint64_t /*bytes*/) { return false; }
  /// The next message from `source`, in the order it was posted, if there is one.
  virtual std::optional<Arrival> poll(Rank source) = 0;

  /// A number that changes whenever a message was polled: two threads that wait tell each other by it. Read
  /// it, look for what is wanted, then sleep on it.
  virtual std::uint32_t ticket() const = 0;
  /// Returns when something has come from one of `sources`, the ticket has changed, a peer may have died or
  /// the deadline has passed; perhaps earlier, and in any case within 50 ms. Spins briefly, then sleeps.
  virtual void sleep(std::uint32_t ticket, std::span<const Rank> sources, Deadline deadline) = 0;

  /// Memory of this rank, zeroed, that others read and write at any time, as `exposed` lends it to them; what
  /// it is called is told to them by a message. Where there are services, only this rank reaches it.
  virtual std::uint64_t expose(std::size_t bytes) = 0;
  /// Gives it back; nobody uses it any more.
  virtual void withdraw(std::uint64_t memory, std::size_t bytes) = 0;
  /// Where what `rank` exposed lies in this process.
  virtual std::byte* exposed(Rank rank, std::uint64_t memory) = 0;

  /// Ends the sleeps of this rank's threads, and the next one of who has read the ticket before.
  virtual void nudge() = 0;

  /// Lets other ranks run where there are fewer cores than ranks.
  virtual void give_way() {}

  /// False once the peer has died or left. What it posted before can still be polled.
  virtual bool alive(Rank peer) const = 0;

  /// Why this rank is no longer part of the job: the others have gone on without it, or may have. Empty while
  /// it is part of it.
  virtual std::string exclusion() const { return {}; }
  /// The members have agreed to go on without `peer`: it is not alive any more, and hears of it.
  virtual void exclude(Rank /*peer*/) {}
  /// Grows with what comes from `source`, of messages that are not complete yet, too; 0 where nobody knows.
  virtual std::uint64_t bytes_from(Rank /*source*/) const { return 0; }

  /// How many ranks each host has, where all have equally many and ranks are dealt to them in order; 1 where
  /// not, or where nobody knows.
  virtual Rank ranks_per_host() const { return 1; }

  /// What ranks know of each other beside messages.
  virtual Board& board() = 0;

  /// What ranks ask of each other where they cannot reach each other's memory; none where they can.
  virtual Services* services() { return nullptr; }

  /// What the engine does for all ranks at once; none where Starling's own ways are all there is.
  virtual Collectives* collectives() { return nullptr; }

  /// Where newcomers wait; none where a job's ranks are those it began with.
  virtual Door* door() { return nullptr; }
};

}  // namespace starling
