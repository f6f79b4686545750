#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
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

/// The user and process at the other end of a socket.
struct Credentials {
  uid_t user;
  pid_t process;  // 0: in another PID namespace
};
/// Empty if the system does not tell.
std::optional<Credentials> credentials_of(int socket);
/// "process 41 of user 1001".
std::string text(const Credentials& credentials);

/// Sends a packet, optionally with two descriptors. Waits until the deadline while the queue is full; throws
/// Error if the other side is gone.
void send_packet(int socket, const void* packet, std::size_t bytes, RendezvousClock::time_point deadline,
                 const Descriptor* region = nullptr, const Descriptor* process = nullptr);

enum class Received { packet, nothing, gone };
/// Receives a packet of exactly this many bytes without blocking; `gone` for anything else. If `descriptors`
/// is given, the packet must carry two of them. Throws Error if this process may not open that many files.
Received receive_packet(int socket, void* packet, std::size_t bytes, Rank ranks,
                        RankDescriptors* descriptors = nullptr);

/// Waits until one of the sockets is readable; false when the deadline has passed.
bool wait_readable(const std::vector<int>& sockets, RendezvousClock::time_point deadline);

}  // namespace starling::fabric::local
