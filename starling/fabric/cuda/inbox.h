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

/// The receiving side of a rank: makes messages of tickets. A message waits, and with it what follows from
/// the same sender, until this process has the descriptor of the memory it lies in; that is mapped when the
/// message is first used. Owned by the cuda fabric. Thread-safe.
class Inbox final : public Arrival::Owner {
 public:
  /// `ask` has somebody get the descriptor of a piece; received() or failed() follows, or peer_died().
  Inbox(Fabric& fabric, FlagPages& flags, std::function<void(Rank owner, std::uint32_t piece)> ask);
  /// Ends the mappings whose work has ended; see all_read().
  ~Inbox() override;

  std::optional<Arrival> poll(Rank source);
  /// Whether a message of `source` waits for a descriptor.
  bool waiting(Rank source) const;
  /// Nobody will read what has come and is still to come: its senders need not wait.
  void discard();
  /// Whether this rank's own work on messages that it has let go of has ended.
  bool all_read();

  // These make no call of the device.
  void received(Rank owner, std::uint32_t piece, Descriptor descriptor);
  void failed(Rank owner, const std::string& why);
  void peer_died(Rank peer);

 private:
  /// A piece of a peer's memory. It is asked for, then here, then mapped.
  struct Piece {
    Descriptor descriptor;
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    FlagLine* line = nullptr;
    std::size_t lent = 0;  // messages in it that are held here

    bool known() const { return address != nullptr || descriptor; }
  };
  /// A line of a peer that this rank's streams are to write a number to.
  struct Writing {
    std::uint32_t piece;
    const FlagLine* line;
    std::uint32_t number;
  };
  struct Sender {
    std::deque<Arrival> held;  // tickets and messages of the host, in their order
    std::map<std::uint32_t, Piece> pieces;
    std::set<FlagLine*> ready;  // flags that streams of this rank may wait for
    std::vector<Writing> writing;
    bool dead = false;
    std::string trouble;  // why its memory cannot be had
  };
  /// A message in device memory that is lent to an operation.
  struct Lent {
    Rank source = 0;
    Ticket ticket;
    FlagLine* ready = nullptr;
    FlagLine* claim = nullptr;
    bool used = false;
    kernel::DeviceContext context{};  // of its first use
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
  /// Moves what has come from the fabric to `held`.
  void take_rest(Rank source);
  static void forget_written(Sender& from);

  const int forks_ = forks_so_far();
  Fabric& fabric_;
  FlagPages& flags_;
  const std::function<void(Rank, std::uint32_t)> ask_;
  std::mutex mapping_;               // of calls that map and unmap
  mutable std::mutex mutex_;         // of what follows; never held while the device is called
  std::vector<Sender> senders_;      // by rank
  std::atomic<bool> unused_{false};  // perhaps pieces can be unmapped
};

}  // namespace starling::fabric::cuda
