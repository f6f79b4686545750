#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/base/sha256.h"
#include "starling/base/types.h"
#include "starling/fabric/local/descriptor.h"

// The messages of a rendezvous: a guest says Hello, rank 0 answers with a Challenge that proves that it knows
// the job's token, the guest sends Proof that it knows it, too, together with its descriptors. Then rank 0
// sends one Card with two descriptors for every rank. One packet each.

namespace starling::local {

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

struct Card {
  Rank rank = 0;
};

/// A region and a pidfd travel together.
struct Pair {
  Descriptor region;
  Descriptor process;
};

Nonce random_nonce();

enum class Role : std::uint8_t { host, guest };
/// What only a process that knows `job` can compute. Both nonces and the role are part of it, so that it can
/// neither be used again nor be sent back.
Sha256::Digest proof_of(const std::string& job, Role role, const Hello& hello, const Nonce& host);
bool equal(const Sha256::Digest& a, const Sha256::Digest& b);

/// The user and process at the other end; nothing where the system does not say.
struct Credentials {
  uid_t user;
  pid_t process;  // 0: of another PID namespace
};
std::optional<Credentials> credentials_of(int socket);
/// "process 41 of user 1001".
std::string text(const Credentials& credentials);

/// Throws Error when the other side is gone. A full queue is waited for until the deadline.
void send_packet(int socket, const void* packet, std::size_t bytes, RendezvousClock::time_point deadline,
                 const Descriptor* region = nullptr, const Descriptor* process = nullptr);

enum class Received { packet, nothing, gone };
/// Takes a packet of exactly this many bytes, without waiting; anything else means `gone`. Where `pair` is
/// given, two descriptors must come with it; throws Error when this process may not open that many files.
Received receive_packet(int socket, void* packet, std::size_t bytes, Rank ranks, Pair* pair = nullptr);

/// False when the deadline has passed.
bool wait_readable(const std::vector<int>& sockets, RendezvousClock::time_point deadline);

}  // namespace starling::local
