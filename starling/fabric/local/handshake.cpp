#include "starling/fabric/local/handshake.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/hmac.h"
#include "starling/base/os/system_random.h"
#include "starling/fabric/local/region.h"

namespace starling::fabric::local {
namespace {

constexpr std::size_t kMostDescriptors = 2;

// A packet with room for descriptors, in the form of sendmsg and recvmsg.
struct Packet {
  Packet(void* packet, std::size_t bytes) : part{packet, bytes} {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;

  iovec part;
  msghdr message{};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
};

int milliseconds_until(RendezvousClock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - RendezvousClock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, INT_MAX));
}

// Takes ownership of all received descriptors, however many they are, so that none leaks.
std::vector<Descriptor> descriptors_in(msghdr& message) {
  std::vector<Descriptor> found;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      found.emplace_back(descriptor);
    }
  }
  return found;
}

std::string_view view(const Sha256::Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce;
  fill_random(std::as_writable_bytes(std::span(nonce)));
  return nonce;
}

Sha256::Digest proof_of(const std::string& job, Role role, const Hello& hello, const Nonce& coordinator) {
  std::string message = role == Role::coordinator ? "rank 0 of the rendezvous" : "guest of the rendezvous";
  message += fmt::format(" {} {} {} ", hello.version, hello.rank, hello.size);
  message.append(reinterpret_cast<const char*>(hello.nonce.data()), hello.nonce.size());
  message.append(reinterpret_cast<const char*>(coordinator.data()), coordinator.size());
  return hmac_sha256(job, message);
}

bool equal(const Sha256::Digest& a, const Sha256::Digest& b) {
  return equal_in_constant_time(view(a), view(b));
}

bool knows(const std::string& job, const Hello& hello, const Challenge& challenge) {
  return challenge.version == kRendezvousVersion &&
         equal(challenge.proof, proof_of(job, Role::coordinator, hello, challenge.nonce));
}

std::optional<Credentials> credentials_of(int socket) {
  ucred found{};
  socklen_t length = sizeof(found);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) != 0) return std::nullopt;
  return Credentials{found.uid, found.pid};
}

std::string text(const Credentials& credentials) {
  return credentials.process > 0 ? fmt::format("process {} of user {}", credentials.process, credentials.user)
                                 : fmt::format("a process of user {}", credentials.user);
}

bool same_user(const std::optional<Credentials>& credentials) {
  return credentials && credentials->user == geteuid();
}

Descriptor packet_socket(Rank ranks) {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) throw Error("cannot create a socket: " + open_failure(errno, ranks));
  return made;
}

SocketAddress::SocketAddress(const std::string& name) {
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Sent try_send_packet(int socket, const void* packet, std::size_t bytes,
                     std::initializer_list<const Descriptor*> descriptors) {
  Packet outgoing(const_cast<void*>(packet), bytes);
  msghdr& message = outgoing.message;
  message.msg_controllen = descriptors.size() == 0 ? 0 : CMSG_SPACE(descriptors.size() * sizeof(int));
  if (descriptors.size() > 0) {
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    unsigned char* to = CMSG_DATA(header);
    for (const Descriptor* descriptor : descriptors) {
      const int number = descriptor->get();
      std::memcpy(to, &number, sizeof(number));
      to += sizeof(number);
    }
  }
  for (;;) {
    // A packet is sent whole or not at all.
    if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::packet;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: too many descriptors are in flight; the receivers will take them soon.
    return errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS ? Sent::full : Sent::gone;
  }
}

void send_packet(int socket, const void* packet, std::size_t bytes, RendezvousClock::time_point deadline,
                 std::initializer_list<const Descriptor*> descriptors) {
  for (;;) {
    const Sent sent = try_send_packet(socket, packet, bytes, descriptors);
    if (sent == Sent::packet) return;
    const int reason = errno;
    if (sent == Sent::gone || RendezvousClock::now() > deadline)
      throw Error(fmt::format("the rendezvous failed: {}", std::strerror(reason)));
    pollfd entry{socket, POLLOUT, 0};
    if (reason != ETOOMANYREFS) ::poll(&entry, 1, std::min(milliseconds_until(deadline), 100));
    if (reason == ETOOMANYREFS) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Received receive_packet(int socket, void* packet, std::size_t bytes, Rank ranks,
                        std::initializer_list<Descriptor*> descriptors) {
  Packet incoming(packet, bytes);
  msghdr& message = incoming.message;
  ssize_t received = 0;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && errno == EAGAIN) return Received::nothing;
  if (received < 0) return Received::gone;
  std::vector<Descriptor> found = descriptors_in(message);
  if (received != static_cast<ssize_t>(bytes) || (message.msg_flags & MSG_TRUNC) != 0) return Received::gone;
  // The system drops descriptors that this process may not open.
  if ((message.msg_flags & MSG_CTRUNC) != 0 && found.size() < descriptors.size())
    throw Error("cannot open the shared memory of the other ranks: " + open_failure(EMFILE, ranks));
  if (found.size() != descriptors.size()) return Received::gone;
  auto from = found.begin();
  for (Descriptor* descriptor : descriptors) *descriptor = std::move(*from++);
  return Received::packet;
}

JoinerHandshake::Progress JoinerHandshake::advance(const std::string& job, Rank ranks,
                                                   std::initializer_list<Descriptor*> descriptors,
                                                   RendezvousClock::time_point deadline) {
  const auto progress = [](Received got) {
    return got == Received::nothing ? Progress::waiting : Progress::gone;
  };
  if (!said_hello_) {
    const Received got = receive_packet(socket_.get(), &hello_, sizeof(hello_), ranks);
    if (got != Received::packet) return progress(got);
    if (hello_.version != kRendezvousVersion) return Progress::refused;
    said_hello_ = true;
    nonce_ = random_nonce();
    const Challenge challenge{kRendezvousVersion, nonce_, proof_of(job, Role::coordinator, hello_, nonce_)};
    try {
      send_packet(socket_.get(), &challenge, sizeof(challenge), deadline);
    } catch (const Error&) {
      return Progress::gone;
    }
  }
  Proof proof;
  const Received got = receive_packet(socket_.get(), &proof, sizeof(proof), ranks, descriptors);
  if (got != Received::packet) return progress(got);
  return equal(proof.proof, proof_of(job, Role::joiner, hello_, nonce_)) ? Progress::done : Progress::refused;
}

bool wait_readable(const std::vector<int>& sockets, RendezvousClock::time_point deadline) {
  std::vector<pollfd> entries;
  for (const int socket : sockets) entries.push_back({socket, POLLIN, 0});
  for (;;) {
    const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(deadline));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace starling::fabric::local
