#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "starling/base/forks.h"
#include "starling/base/os/descriptor.h"
#include "starling/fabric/cuda/flag_pages.h"
#include "starling/fabric/fabric.h"
#include "starling/kernel/device.h"

namespace starling::fabric::cuda {

/// The receiving side of a rank: turns tickets into messages. A message, and everything after it from the
/// same sender, waits until this process has the descriptor of its memory. The memory is mapped when the
/// message is first used. Owned by the cuda fabric. Thread-safe.
class Inbox final : public Arrival::Owner {
 public:
  /// `ask` requests the descriptor of a piece; received(), failed() or peer_died() follows.
  Inbox(Fabric& fabric, FlagPages& flags, std::function<void(Rank owner, std::uint32_t piece)> ask);
  /// Unmaps the memory whose work has ended; see all_read().
  ~Inbox() override;

  std::optional<Arrival> poll(Rank source);
  /// Whether a message from `source` waits for a descriptor.
  bool waiting(Rank source) const;
  /// Discards all messages, received or still to come, so that their senders need not wait.
  void discard();
  /// Whether this rank's work on the messages that it has released has ended.
  bool all_read();

  // The following functions make no calls of the device.
  void received(Rank owner, std::uint32_t piece, Descriptor descriptor);
  void failed(Rank owner, const std::string& why);
  void peer_died(Rank peer);

 private:
  /// A piece of a peer's memory: first requested, then received, then mapped.
  struct Piece {
    Descriptor descriptor;
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    FlagLine* line = nullptr;
    std::size_t lent = 0;  // the number of its messages that this rank holds

    bool known() const { return address != nullptr || descriptor; }
  };
  /// A flag line of a peer to which this rank's streams will write a number.
  struct Writing {
    std::uint32_t piece;
    const FlagLine* line;
    std::uint32_t number;
  };
  struct Sender {
    std::deque<Arrival> held;  // tickets and host messages, in order
    std::map<std::uint32_t, Piece> pieces;
    std::set<FlagLine*> ready;  // flags that this rank's streams may wait for
    std::vector<Writing> writing;
    bool dead = false;
    std::string trouble;  // why its memory is not available
  };
  /// A device message that an operation currently holds.
  struct Lent {
    Rank source = 0;
    Ticket ticket;
    FlagLine* ready = nullptr;
    FlagLine* claim = nullptr;
    bool used = false;
    kernel::DeviceContext context{};  // where it was first used
  };

  void done_with(void* handle) noexcept override;
  DevicePayload device_payload(void* handle) override;
  bool complete(void* handle) const override;

  Sender& sender(Rank rank) { return senders_[static_cast<std::size_t>(rank)]; }
  Ticket ticket_in(const Arrival& arrival) const;
  Arrival lend(Rank source, const Arrival& arrival, const Ticket& ticket);
  void drop(Rank source, const Ticket& ticket);
  std::byte* mapped(Rank source, const Ticket& ticket);
  void unmap_unused();
  /// Moves the messages that have arrived in the fabric to `held`.
  void take_rest(Rank source);
  static void forget_written(Sender& from);

  const int forks_ = forks_so_far();
  Fabric& fabric_;
  FlagPages& flags_;
  const std::function<void(Rank, std::uint32_t)> ask_;
  std::mutex mapping_;               // serializes calls that map and unmap
  mutable std::mutex mutex_;         // guards the following members; never held during calls of the device
  std::vector<Sender> senders_;      // by rank
  std::atomic<bool> unused_{false};  // some pieces may be ready to unmap
};

}  // namespace starling::fabric::cuda
