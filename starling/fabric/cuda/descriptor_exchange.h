#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
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

/// A piece of device memory that its owner lends to another rank, as long as its pool is open.
struct LentPiece {
  std::uint32_t pool = 0;  // of the owner's, from 1
  std::uint32_t piece = 0;
  std::uint64_t bytes = 0;
};

/// What a DescriptorExchange asks its rank, and tells it.
struct DescriptorEnds {
  /// The descriptor of one of this rank's pieces for a peer; empty if there is no such piece.
  std::function<Descriptor(Rank reader, std::uint32_t piece)> give;
  std::function<void(Rank owner, std::uint32_t piece, Descriptor descriptor)> take;
  std::function<void(Rank owner, const std::string& why)> fail;
  std::function<void(Rank owner, const LentPiece& piece, Descriptor descriptor)> borrow = {};
};

/// Passes descriptors of device memory between the ranks of a host: every rank answers on an abstract socket
/// of its own, and connects to those of others. Both ends prove to each other that they know the job, as at
/// the rendezvous. One thread calls run(); the rest is thread-safe.
///
/// Pieces of messages are asked for when the first message in them has come. Pieces of pools are sent before
/// anybody needs them: what lend() has handed to the system is there even if its owner is stopped or dies.
class DescriptorExchange {
 public:
  /// Throws Error if the socket's name is taken.
  DescriptorExchange(const std::string& job, Rank rank, Rank size, DescriptorEnds ends);

  void ask(Rank owner, std::uint32_t piece);
  void wake();
  /// Waits for an event, at most `most`, and does all work that needs no waiting.
  void run(std::chrono::milliseconds most);
  /// This peer is dead: what it was asked for does not come.
  void forget(Rank peer);

  /// From now on the owner can lend memory to this rank, once it answers.
  void accept_loans(Rank owner);
  /// Whether this rank can lend memory to the reader.
  bool connected(Rank reader);
  /// `full` where the reader has not taken for long what was sent to it, `gone` where it is not connected.
  local::Sent lend(Rank reader, const LentPiece& piece, const Descriptor& descriptor);
  /// Takes what others have lent so far.
  void receive();

 private:
  using Clock = local::RendezvousClock;
  /// A peer that requests pieces of this rank.
  struct Reader {
    local::JoinerHandshake handshake;
    bool known = false;  // it knows the job
    std::deque<std::pair<std::uint32_t, Descriptor>> replies{};
  };
  /// A peer from which this rank requests pieces.
  struct Owner {
    Descriptor socket;
    local::Hello hello{};
    bool known = false;
    bool lends = false;  // connected also when nothing is wanted
    std::vector<std::uint32_t> wanted;
    std::size_t asked = 0;      // so many of them
    Clock::time_point since{};  // pieces are wanted, or one came

    bool needed() const { return lends || !wanted.empty(); }
  };

  std::string key_of(Rank rank) const;
  void wait(std::chrono::milliseconds most);
  void accept_readers();
  /// Returns true if the reader is gone or not a rank of this job.
  bool serve(Reader& reader);
  bool send_replies(Reader& reader);
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
  std::mutex asking_;  // of asked_; taken by who holds locks that `ends_` needs
  std::vector<std::pair<Rank, std::uint32_t>> asked_;
  std::mutex mutex_;  // of what follows
  std::vector<Reader> readers_;
  std::map<Rank, Owner> owners_;
};

}  // namespace starling::fabric::cuda
