#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"
#include "starling/fabric/local/handshake.h"

namespace starling::fabric::cuda {

/// What a DescriptorExchange asks its rank, and tells it.
struct DescriptorEnds {
  /// The descriptor of one of this rank's pieces for a peer; empty if there is no such piece.
  std::function<Descriptor(Rank reader, std::uint32_t piece)> give;
  std::function<void(Rank owner, std::uint32_t piece, Descriptor descriptor)> take;
  std::function<void(Rank owner, const std::string& why)> fail;
};

/// Passes descriptors of device memory between the ranks of a host: every rank answers on an abstract socket
/// of its own, and connects to those of others. Both ends prove to each other that they know the job, as at
/// the rendezvous. Used by one thread, except for ask() and wake().
class DescriptorExchange {
 public:
  /// Throws Error if the socket's name is taken.
  DescriptorExchange(const std::string& job, Rank rank, Rank size, DescriptorEnds ends);

  void ask(Rank owner, std::uint32_t piece);
  void wake();
  /// Waits until something has come, at most for so long, and does all that can be done without waiting.
  void run(std::chrono::milliseconds most);
  /// This peer is dead: what it was asked for does not come.
  void forget(Rank peer) { owners_.erase(peer); }

 private:
  using Clock = local::RendezvousClock;
  /// A peer that asks.
  struct Reader {
    local::JoinerHandshake handshake;
    bool known = false;  // it knows the job
  };
  /// A peer that is asked.
  struct Owner {
    Descriptor socket;
    local::Hello hello{};
    bool known = false;
    std::vector<std::uint32_t> wanted;
    std::size_t asked = 0;      // so many of them
    Clock::time_point since{};  // pieces are wanted, or one came
  };

  std::string key_of(Rank rank) const;
  void wait(std::chrono::milliseconds most);
  void accept_readers();
  /// True if the reader is gone, or none.
  bool serve(Reader& reader);
  void advance(Rank rank, Owner& owner);
  void connect_to(Rank rank, Owner& owner);
  bool receive_from(Rank rank, Owner& owner);
  static void disconnect(Owner& owner);

  const std::string job_;
  const Rank rank_;
  const Rank size_;
  const DescriptorEnds ends_;
  Descriptor listener_;
  Descriptor wake_;
  std::vector<Reader> readers_;
  std::map<Rank, Owner> owners_;
  std::mutex mutex_;  // of asked_
  std::vector<std::pair<Rank, std::uint32_t>> asked_;
};

}  // namespace starling::fabric::cuda
