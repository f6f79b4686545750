#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <vector>

#include "starling/base/os/descriptor.h"
#include "starling/base/sha256.h"
#include "starling/base/types.h"

// The packets of a rendezvous. A joiner sends Hello; the coordinator (rank 0) answers with a Challenge that
// proves that it knows the job's token; the joiner sends a Proof that it knows the token, too, with its two
// descriptors. Then the coordinator sends one RankCard with two descriptors for every rank.

namespace starling::fabric::local {

using RendezvousClock = std::chrono::steady_clock;
using Nonce = std::array<std::uint8_t, 32>;

inline constexpr std::uint32_t kRendezvousVersion = 2;

struct Hello {
  std::uint32_t version = kRendezvousVersion;
  Rank rank = 0;
  Rank size = 0;
  Nonce nonce{};
};

struct Challenge {
  std::uint32_t version = kRendezvousVersion;
  Nonce nonce{};
  Sha256::Digest proof{};
};

struct Proof {
  Sha256::Digest proof{};
};

struct RankCard {
  Rank rank = 0;
};

/// The two descriptors that every rank shares with the others.
struct RankDescriptors {
  Descriptor region;
  Descriptor process;
};

Nonce random_nonce();

enum class Role : std::uint8_t { coordinator, joiner };
/// A proof of knowing `job`. It covers both nonces and the role, so that it can neither be replayed nor
/// reflected.
Sha256::Digest proof_of(const std::string& job, Role role, const Hello& hello, const Nonce& coordinator);
bool equal(const Sha256::Digest& a, const Sha256::Digest& b);
/// Whether the coordinator that answered `hello` knows `job`.
bool knows(const std::string& job, const Hello& hello, const Challenge& challenge);

/// The user and process at the other end of a socket.
struct Credentials {
  uid_t user;
  pid_t process;  // 0: in another PID namespace
};
/// Empty if the system does not know.
std::optional<Credentials> credentials_of(int socket);
/// "process 41 of user 1001".
std::string text(const Credentials& credentials);
/// Whether they are this process's user. Root is no exception: a root process among a user's ranks is a
/// mistake.
bool same_user(const std::optional<Credentials>& credentials);

/// A socket for packets, which does not block. Throws Error.
Descriptor packet_socket(Rank ranks);
/// The address of an abstract socket, which has no file and vanishes with its last process.
struct SocketAddress {
  explicit SocketAddress(const std::string& name);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t length = 0;
};

enum class Sent { packet, full, gone };
/// Sends a packet with at most two descriptors without blocking; `full` if the other side must take some
/// first.
Sent try_send_packet(int socket, const void* packet, std::size_t bytes,
                     std::initializer_list<const Descriptor*> descriptors = {});
/// The same, but waits until the deadline while the queue is full; throws Error if the other side is gone.
void send_packet(int socket, const void* packet, std::size_t bytes, RendezvousClock::time_point deadline,
                 std::initializer_list<const Descriptor*> descriptors = {});

enum class Received { packet, nothing, gone };
/// Receives a packet of exactly this many bytes and descriptors without blocking; `gone` for anything else.
/// Throws Error if this process may not open that many files.
Received receive_packet(int socket, void* packet, std::size_t bytes, Rank ranks,
                        std::initializer_list<Descriptor*> descriptors = {});

/// The coordinator's part in the handshake with one joiner, as far as packets have come.
class JoinerHandshake {
 public:
  explicit JoinerHandshake(Descriptor socket) : socket_(std::move(socket)) {}

  enum class Progress { waiting, done, gone, refused };
  /// `descriptors` receives the descriptors that come with the proof. May throw the errors of
  /// receive_packet().
  Progress advance(const std::string& job, Rank ranks, std::initializer_list<Descriptor*> descriptors,
                   RendezvousClock::time_point deadline);
  const Hello& hello() const { return hello_; }
  int socket() const { return socket_.get(); }
  Descriptor take_socket() { return std::move(socket_); }

 private:
  Descriptor socket_;
  bool said_hello_ = false;
  Hello hello_{};
  Nonce nonce_{};
};

/// Waits until one of the sockets is readable; false when the deadline has passed.
bool wait_readable(const std::vector<int>& sockets, RendezvousClock::time_point deadline);

}  // namespace starling::fabric::local
