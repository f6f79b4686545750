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

/// The functions through which a DescriptorExchange serves its rank's pieces and delivers pieces of peers.
struct DescriptorEnds {
  /// The descriptor of one of this rank's pieces for a peer; empty if there is no such piece.
  std::function<Descriptor(Rank reader, std::uint32_t piece)> give;
  std::function<void(Rank owner, std::uint32_t piece, Descriptor descriptor)> take;
  std::function<void(Rank owner, const std::string& why)> fail;
};

/// Passes descriptors of device memory between the ranks of a host. Every rank answers requests on an
/// abstract socket and connects to the sockets of others. Both ends prove that they know the job, as in the
/// rendezvous. Used by one thread, except for ask() and wake().
class DescriptorExchange {
 public:
  /// Throws Error if the socket's name is taken.
  DescriptorExchange(const std::string& job, Rank rank, Rank size, DescriptorEnds ends);

  void ask(Rank owner, std::uint32_t piece);
  void wake();
  /// Waits for an event, at most `most`, and does all work that needs no waiting.
  void run(std::chrono::milliseconds most);
  /// The peer is dead: drops the requests to it.
  void forget(Rank peer) { owners_.erase(peer); }

 private:
  using Clock = local::RendezvousClock;
  /// A peer that requests pieces of this rank.
  struct Reader {
    local::JoinerHandshake handshake;
    bool known = false;  // it has proved that it knows the job
  };
  /// A peer from which this rank requests pieces.
  struct Owner {
    Descriptor socket;
    local::Hello hello{};
    bool known = false;
    std::vector<std::uint32_t> wanted;
    std::size_t asked = 0;      // how many of them were requested
    Clock::time_point since{};  // when the first outstanding piece was requested, or the last one arrived
  };

  std::string key_of(Rank rank) const;
  void wait(std::chrono::milliseconds most);
  void accept_readers();
  /// Returns true if the reader is gone or not a rank of this job.
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
  std::mutex mutex_;  // guards asked_
  std::vector<std::pair<Rank, std::uint32_t>> asked_;
};

}  // namespace starling::fabric::cuda
