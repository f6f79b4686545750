#include "starling/fabric/cuda/descriptor_exchange.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/system_error.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling::fabric::cuda {
namespace {

using local::Received;

constexpr std::chrono::seconds kSendLimit{1};     // packets are small, and the queue is long
constexpr std::chrono::seconds kAnswerLimit{10};  // if the rank at the socket is alive
constexpr std::chrono::milliseconds kRetry{5};

/// The process at the other end of a socket is not the expected rank.
class Stranger : public Error {
 public:
  using Error::Error;
};

/// A request for a piece of messages (pool 0), and with a descriptor the reply to one, or a lent piece.
using PiecePacket = LentPiece;

}  // namespace

DescriptorExchange::DescriptorExchange(const std::string& job, Rank rank, Rank size, DescriptorEnds ends)
    : job_(job),
      rank_(rank),
      size_(size),
      ends_(std::move(ends)),
      listener_(local::packet_socket(size)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw SystemError("cannot make an eventfd", errno);
  const local::SocketAddress address(local::rendezvous_name(key_of(rank)));
  if (bind(listener_.get(), address.get(), address.length) != 0 || listen(listener_.get(), size) != 0)
    throw SystemError(fmt::format("rank {} cannot open the socket over which it shares device memory", rank),
                      errno);
}

// The secret whose knowledge both ends prove: the job and the rank that owns the socket.
std::string DescriptorExchange::key_of(Rank rank) const {
  return fmt::format("the device memory of rank {} of {}", rank, job_);
}

void DescriptorExchange::ask(Rank owner, std::uint32_t piece) {
  {
    const std::lock_guard lock(asking_);
    asked_.emplace_back(owner, piece);
  }
  wake();
}

void DescriptorExchange::wake() {
  const std::uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof(one)));  // full: the thread is awake already
}

void DescriptorExchange::accept_loans(Rank owner) {
  {
    const std::lock_guard lock(mutex_);
    owners_[owner].lends = true;
  }
  wake();
}

bool DescriptorExchange::connected(Rank reader) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      readers_, [&](const Reader& one) { return one.known && one.handshake.hello().rank == reader; });
}

local::Sent DescriptorExchange::lend(Rank reader, const LentPiece& piece, const Descriptor& descriptor) {
  const std::lock_guard lock(mutex_);
  for (auto one = readers_.rbegin(); one != readers_.rend(); ++one)
    if (one->known && one->handshake.hello().rank == reader)
      return local::try_send_packet(one->handshake.socket(), &piece, sizeof(piece), {&descriptor});
  return local::Sent::gone;
}

void DescriptorExchange::receive() {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, owner] : owners_) advance(rank, owner);
}

void DescriptorExchange::forget(Rank peer) {
  const std::lock_guard lock(mutex_);
  owners_.erase(peer);
}

void DescriptorExchange::run(std::chrono::milliseconds most) {
  wait(most);
  std::uint64_t ignored = 0;
  static_cast<void>(!read(wake_.get(), &ignored, sizeof(ignored)));
  std::vector<std::pair<Rank, std::uint32_t>> asked;
  {
    const std::lock_guard lock(asking_);
    asked.swap(asked_);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, piece] : asked) {
    Owner& owner = owners_[rank];
    if (owner.wanted.empty()) owner.since = Clock::now();
    owner.wanted.push_back(piece);
  }
  accept_readers();
  std::erase_if(readers_, [this](Reader& reader) { return serve(reader); });
  for (auto& [rank, owner] : owners_) advance(rank, owner);
}

// Another thread may close a socket that this one waits for, which then is looked at for nothing.
void DescriptorExchange::wait(std::chrono::milliseconds most) {
  std::vector<int> sockets = {wake_.get(), listener_.get()};
  const auto soon = [&] { most = std::min<std::chrono::milliseconds>(most, kRetry); };
  {
    const std::lock_guard lock(mutex_);
    for (const Reader& reader : readers_) {
      sockets.push_back(reader.handshake.socket());
      if (!reader.replies.empty()) soon();
    }
    for (const auto& [rank, owner] : owners_) {
      if (owner.socket)
        sockets.push_back(owner.socket.get());
      else if (owner.needed())
        soon();
    }
  }
  local::wait_readable(sockets, Clock::now() + most);
}

void DescriptorExchange::accept_readers() {
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (local::same_user(local::credentials_of(socket.get())))
      readers_.push_back({local::JoinerHandshake(std::move(socket))});
  }
}

bool DescriptorExchange::serve(Reader& reader) {
  using Progress = local::JoinerHandshake::Progress;
  try {
    if (!reader.known) {
      const Progress progress = reader.handshake.advance(key_of(rank_), size_, {}, Clock::now() + kSendLimit);
      if (progress != Progress::done) return progress != Progress::waiting;
      reader.known = true;
    }
    for (;;) {
      PiecePacket packet;
      const Received got = local::receive_packet(reader.handshake.socket(), &packet, sizeof(packet), size_);
      if (got == Received::gone) return true;
      if (got == Received::nothing) return send_replies(reader);
      Descriptor descriptor = ends_.give(reader.handshake.hello().rank, packet.piece);
      if (!descriptor) return true;
      reader.replies.emplace_back(packet.piece, std::move(descriptor));
    }
  } catch (const Error&) {
    return true;
  }
}

// True if the reader is gone. A stopped one takes nothing.
bool DescriptorExchange::send_replies(Reader& reader) {
  while (!reader.replies.empty()) {
    const auto& [piece, descriptor] = reader.replies.front();
    const PiecePacket packet{.piece = piece};
    const local::Sent sent =
        local::try_send_packet(reader.handshake.socket(), &packet, sizeof(packet), {&descriptor});
    if (sent != local::Sent::packet) return sent == local::Sent::gone;
    reader.replies.pop_front();
  }
  return false;
}

void DescriptorExchange::advance(Rank rank, Owner& owner) {
  if (!owner.needed()) return;
  const auto fail = [&](const Error& error) {
    ends_.fail(rank, fmt::format("cannot get the device memory of rank {}: {}", rank, error.what()));
    owner.wanted.clear();
  };
  try {
    if (!owner.socket) connect_to(rank, owner);
    while (receive_from(rank, owner)) {
    }
    for (; owner.known && owner.asked < owner.wanted.size(); ++owner.asked) {
      const PiecePacket packet{.piece = owner.wanted[owner.asked]};
      local::send_packet(owner.socket.get(), &packet, sizeof(packet), Clock::now() + kSendLimit);
    }
  } catch (const Stranger& error) {
    disconnect(owner);
    owner.lends = false;
    fail(error);
  } catch (const Error& error) {  // a dead rank will be forgotten soon
    disconnect(owner);
    if (!owner.wanted.empty() && Clock::now() - owner.since > kAnswerLimit) fail(error);
  }
}

void DescriptorExchange::disconnect(Owner& owner) {
  owner.socket = Descriptor();
  owner.known = false;
  owner.asked = 0;
}

void DescriptorExchange::connect_to(Rank rank, Owner& owner) {
  const local::SocketAddress address(local::rendezvous_name(key_of(rank)));
  owner.socket = local::packet_socket(size_);
  if (connect(owner.socket.get(), address.get(), address.length) != 0)
    throw SystemError("its socket does not answer", errno);
  if (const auto holder = local::credentials_of(owner.socket.get()); !local::same_user(holder))
    throw Stranger("its socket is held by " + local::text(holder.value_or(local::Credentials{})));
  owner.hello = {local::kRendezvousVersion, rank_, size_, local::random_nonce()};
  local::send_packet(owner.socket.get(), &owner.hello, sizeof(owner.hello), Clock::now() + kSendLimit);
}

// Returns true if there may be more.
bool DescriptorExchange::receive_from(Rank rank, Owner& owner) {
  Received got{};
  if (!owner.known) {
    local::Challenge challenge;
    got = local::receive_packet(owner.socket.get(), &challenge, sizeof(challenge), size_);
    if (got == Received::packet) {
      if (!local::knows(key_of(rank), owner.hello, challenge))
        throw Stranger("its socket is held by a process that does not know the job's token");
      const local::Proof proof{
          local::proof_of(key_of(rank), local::Role::joiner, owner.hello, challenge.nonce)};
      local::send_packet(owner.socket.get(), &proof, sizeof(proof), Clock::now() + kSendLimit);
      owner.known = true;
    }
  } else {
    PiecePacket packet;
    Descriptor descriptor;
    got = local::receive_packet(owner.socket.get(), &packet, sizeof(packet), size_, {&descriptor});
    if (got == Received::packet && packet.pool != 0) {
      ends_.borrow(rank, packet, std::move(descriptor));
    } else if (got == Received::packet) {
      ends_.take(rank, packet.piece, std::move(descriptor));
      if (std::erase(owner.wanted, packet.piece) > 0 && owner.asked > 0) --owner.asked;
      owner.since = Clock::now();
    }
  }
  if (got == Received::gone) throw Error("the connection is closed");
  return got == Received::packet;
}

}  // namespace starling::fabric::cuda
