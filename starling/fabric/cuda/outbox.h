#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "starling/base/forks.h"
#include "starling/base/types.h"
#include "starling/fabric/cuda/flag_pages.h"
#include "starling/fabric/device_messages.h"
#include "starling/kernel/device.h"

namespace starling::fabric::cuda {

/// The sending side of a rank: slots in device memory, each reused by one message after another. A slot is
/// reused once the host processes of its readers have released it, by a stream that then waits for the
/// readers' devices. So no stream waits for work that is not enqueued yet, whatever the order of operations.
/// Owned by the cuda fabric. Thread-safe.
class Outbox final : public DeviceMessages, public Outgoing::Owner {
 public:
  Outbox(Rank rank, Rank size, FlagPages& flags, std::size_t limit)
      : rank_(rank), flags_(flags), limit_(limit), dead_(static_cast<std::size_t>(size)) {}
  /// Frees the memory whose work has ended; see all_written().
  ~Outbox() override;

  Outgoing reserve(std::size_t bytes) override;
  Usage usage() const override;
  /// The ticket with which `to` finds a range of a message. The first ticket of a message makes the calling
  /// thread's stream signal the readers when the message is complete.
  Ticket publish(const OutgoingRange& range, Rank to);

  /// The descriptor of a piece, for one of its readers; empty if there is no such piece.
  Descriptor give(Rank reader, std::uint32_t piece);
  /// No stream waits for this peer any more. Makes no calls of the device.
  void peer_died(Rank peer);

  /// Whether this rank's work on its own messages has ended.
  bool all_written() const;
  /// Whether a live reader has not yet requested memory that holds a message for it.
  bool readers_need_pieces() const;

 private:
  /// A piece of device memory, which peers map as a whole.
  struct Piece {
    kernel::Device::SharedMemory memory;
    int device = kernel::device_context().device;
    OwnLine line;
    std::size_t carved = 0;  // bytes assigned to slots
    std::set<Rank> readers;  // ranks that have its descriptor
  };
  /// A reader's claim on a message.
  struct Claim {
    OwnLine line;
    Rank to;
    std::size_t bytes;
  };
  struct Slot {
    Piece* piece = nullptr;  // null for messages without payload
    std::size_t offset = 0;
    std::size_t capacity = 0;
    std::size_t made_for = 0;  // the requested bytes, which the device rounds up
    /// The flag that this rank's streams write: first when the message is complete, then when they have
    /// finished with it.
    OwnLine ready{};
    bool held = false;
    bool published = false;
    std::uint64_t given_back = 0;  // when it was released: a running number
    std::vector<Claim> claims{};
    std::vector<kernel::DeviceContext> contexts{};  // the contexts in which this rank enqueued work on it
  };
  using Pieces = std::vector<std::unique_ptr<Piece>>;

  void give_back(void* handle) noexcept override;
  static bool fits(std::size_t bytes, const Slot& slot);
  Slot& slot_for(std::size_t bytes);
  Slot* free_slot(std::size_t bytes);
  Slot& new_slot(std::size_t bytes);
  /// Allocates a piece of `bytes`, for a message of `wanted` bytes.
  Piece& new_piece(std::size_t bytes, std::size_t wanted);
  void prepare(Slot& slot);
  static void follow_others(const Slot& slot);
  void await(const OwnLine& line) const;
  bool let_go(const Slot& slot) const;
  bool idle(const Slot& slot) const;
  void free_idle_pieces();
  Pieces take_idle_pieces(bool& some_are_busy);
  void reuse_lines();
  std::string holders() const;

  const int forks_ = forks_so_far();
  const Rank rank_;
  FlagPages& flags_;
  const std::size_t limit_;
  std::mutex calls_;  // serializes reserve() and publish(); held during calls of the device
  /// Guards the following members. Never held during calls of the device, which may block until a peer is
  /// known to be dead.
  mutable std::mutex mutex_;
  std::vector<bool> dead_;  // by rank
  Pieces pieces_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Claim> ending_;  // released by the readers' hosts; this rank's stream waits for their devices
  std::size_t bytes_ = 0;      // of all pieces
  std::uint32_t last_piece_ = 0;
  std::uint64_t gifts_ = 0;  // the number of slots released so far
};

}  // namespace starling::fabric::cuda
