#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "starling/fabric/admission.h"
#include "starling/fabric/board.h"
#include "starling/fabric/message.h"
#include "starling/fabric/outgoing.h"
#include "starling/kernel/term.h"

namespace starling::fabric {

using Deadline = std::chrono::steady_clock::time_point;

/// The location of a message in device memory, in this process. The message is complete when its flag has
/// reached `number`.
struct DevicePayload {
  const std::byte* data = nullptr;
  const kernel::Flag* flag = nullptr;
  std::uint32_t number = 0;
};

/// A received message: a read-only view of its bytes, released when this object is destroyed. A message in
/// device memory may not have arrived yet. Enqueue work that reads it before destroying this object, on the
/// destroying thread's stream (kernel/device.h) or on one that this stream waits for.
class Arrival {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void done_with(void* handle) noexcept = 0;
    /// The payload of a message in device memory, for the calling thread's device.
    virtual DevicePayload device_payload(void* /*handle*/) { return {}; }
    virtual bool complete(void* /*handle*/) const { return true; }
  };

  Arrival() = default;
  Arrival(Owner* owner, Rank source, void* handle, const MessageHeader& header,
          std::span<const std::byte> bytes)
      : owner_(owner),
        source_(source),
        handle_(handle),
        header_(header),
        bytes_(bytes),
        size_(bytes.size()) {}
  /// A message in device memory.
  Arrival(Owner* owner, Rank source, void* handle, const MessageHeader& header, MemoryKind memory)
      : owner_(owner),
        memory_(memory),
        source_(source),
        handle_(handle),
        header_(header),
        size_(static_cast<std::size_t>(header.bytes)) {}
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
  std::size_t size() const { return size_; }
  MemoryKind memory() const { return memory_; }
  /// Throws InvalidArgument unless the message is in host memory.
  std::span<const std::byte> bytes() const {
    if (memory_ != MemoryKind::host) throw_not_host_memory(memory_);
    return bytes_;
  }
  /// Whether the payload has arrived. In device memory the payload follows its header, or never arrives if
  /// the sender dies before.
  bool complete() const { return memory_ == MemoryKind::host || owner_->complete(handle_); }
  /// `count` elements from byte `offset` on; valid once the payload is complete.
  ConstBuffer buffer(DType dtype, std::size_t count, std::size_t offset = 0) const {
    if (memory_ == MemoryKind::host) return {dtype, bytes_.data() + offset, count};
    return {dtype, owner_->device_payload(handle_).data + offset, count, memory_, nullptr};
  }
  /// `count` elements from byte `offset` on, as a term of a sum. In device memory, the term has the flag that
  /// the device waits for.
  Term term(DType dtype, std::size_t count, std::size_t offset, double weight) const {
    if (memory_ == MemoryKind::host) return {ConstBuffer(dtype, bytes_.data() + offset, count), weight};
    const DevicePayload payload = owner_->device_payload(handle_);
    Term term(ConstBuffer(dtype, payload.data + offset, count, memory_, nullptr), weight);
    term.flag = payload.flag;
    term.number = payload.number;
    return term;
  }
  /// For fabrics that wrap another one with different rank numbers.
  void set_source(Rank source) { source_ = source; }
  /// True if a lossy fabric dropped the payload: only the header has arrived.
  bool lost() const { return lost_; }
  void lose() {
    lost_ = true;
    bytes_ = {};
    size_ = 0;
  }

 private:
  void swap(Arrival& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(memory_, other.memory_);
    std::swap(lost_, other.lost_);
    std::swap(source_, other.source_);
    std::swap(handle_, other.handle_);
    std::swap(header_, other.header_);
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
  }
  Owner* owner_ = nullptr;
  MemoryKind memory_ = MemoryKind::host;
  bool lost_ = false;
  Rank source_ = 0;
  void* handle_ = nullptr;
  MessageHeader header_;
  std::span<const std::byte> bytes_;
  std::size_t size_ = 0;
};

class Collectives;
class DeviceMessages;
class DevicePools;
class RemoteCalls;

/// Moves messages between ranks and guarantees their order per pair of ranks, nothing else: weights, names
/// and matching belong to the layers above. Thread-safe.
class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual Rank rank() const = 0;
  virtual Rank size() const = 0;

  /// Allocates memory for a message. Never blocks; throws Error when the memory limit is reached, and names
  /// the ranks that hold unread messages.
  virtual Outgoing reserve(std::size_t bytes) = 0;
  /// Sends a message, or a range of it, to one other rank, which receives exactly these bytes. Never blocks;
  /// a message to a dead rank is dropped.
  virtual void post(const OutgoingRange& range, const MessageHeader& header, Rank to) = 0;
  /// Whether more than `bytes` posted to `to` are unread, as far as this fabric knows.
  virtual bool backlogged(Rank /*to*/, std::uint64_t /*bytes*/) { return false; }
  /// The next message from `source` in posting order, if one has arrived. Never blocks.
  virtual std::optional<Arrival> poll(Rank source) = 0;

  /// A counter that grows whenever a thread polls a message, so that sleeping threads notice messages that
  /// another thread took. Read it, look for the wanted message, then pass it to sleep().
  virtual std::uint32_t wake_count() const = 0;
  /// Returns when a message from one of `sources` has arrived, wake_count() has changed, a peer may have died
  /// or the deadline has passed; possibly earlier, and always within 50 ms. Spins briefly, then sleeps.
  virtual void sleep(std::uint32_t wake_count, std::span<const Rank> sources, Deadline deadline) = 0;

  /// Allocates zeroed memory that other ranks may read and write at any time through exposed(). They learn
  /// the returned handle through a message. On fabrics with remote_calls() only this rank can access it
  /// directly.
  virtual std::uint64_t expose(std::size_t bytes) = 0;
  /// Frees exposed memory; the caller guarantees that no rank uses it any more.
  virtual void withdraw(std::uint64_t memory, std::size_t bytes) = 0;
  /// The address in this process of memory that `rank` has exposed.
  virtual std::byte* exposed(Rank rank, std::uint64_t memory) = 0;

  /// Wakes this rank's sleeping threads, and any thread that has read wake_count() but is not asleep yet.
  virtual void nudge() = 0;

  /// Yields the CPU to other ranks if there are fewer cores than ranks.
  virtual void yield_cpu() {}

  /// This rank leaves: alive() becomes false for it on its peers. The destructor does so, too.
  virtual void leave() {}

  /// False once the peer has died or left. Messages that it posted before can still be polled.
  virtual bool alive(Rank peer) const = 0;

  /// Why this rank is no longer a member of the job (the others continue without it, or may do so). Empty if
  /// it is a member.
  virtual std::string exclusion_reason() const { return {}; }
  /// The members have agreed to continue without `peer`: alive(peer) becomes false, and `peer` is notified.
  virtual void exclude(Rank /*peer*/) {}
  /// Bytes received from `source`, including incomplete messages; always 0 if the fabric does not count them.
  virtual std::uint64_t bytes_from(Rank /*source*/) const { return 0; }

  /// The number of ranks per host if all hosts have equally many, numbered host by host; 1 if not, or if the
  /// fabric does not know.
  virtual Rank ranks_per_host() const { return 1; }

  /// The status board of all ranks.
  virtual Board& board() = 0;

  /// Remote calls between ranks that cannot access each other's memory; null if they can.
  virtual RemoteCalls* remote_calls() { return nullptr; }

  /// Messages in device memory; null if there are none.
  virtual DeviceMessages* device_messages() { return nullptr; }

  /// Device memory that ranks lend each other; null if there is none.
  virtual DevicePools* device_pools() { return nullptr; }

  /// Collective operations of the engine; null if only Starling's own algorithms are available.
  virtual Collectives* collectives() { return nullptr; }

  /// Admission of newcomers; null if the set of ranks is fixed.
  virtual Admission* admission() { return nullptr; }
};

}  // namespace starling::fabric
