#include "starling/fabric/local/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "starling/base/error.h"

namespace starling::local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Rank kMostRanks = 1024;
constexpr std::uint32_t kVersion = 1;

// What travels with every descriptor.
struct Card {
  std::uint32_t version = kVersion;
  Rank rank = 0;
  Rank size = 0;
  pid_t pid = 0;
};

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept { std::swap(descriptor_, other.descriptor_); }
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

Socket make_socket() {
  Socket made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!made) throw Error(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  return made;
}

// Abstract: it has no file and vanishes with its last process.
socklen_t fill_address(const std::string& job, sockaddr_un& address) {
  address.sun_family = AF_UNIX;
  const std::string name = "starling-" + std::to_string(getuid()) + "-" + job;
  if (name.size() + 1 > sizeof(address.sun_path))
    throw InvalidArgument(fmt::format("the job's name '{}' is too long", job));
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// A card with room for one descriptor, as sendmsg and recvmsg want it.
struct Envelope {
  explicit Envelope(Card* card) : part{card, sizeof(Card)} {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  iovec part;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

// The kernel bounds the descriptors that are under way: then it waits until others have taken theirs.
void send_card(int to, const Card& card, int descriptor, Clock::time_point deadline) {
  Envelope envelope(const_cast<Card*>(&card));
  msghdr& message = envelope.message;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  while (sendmsg(to, &message, MSG_NOSIGNAL) != sizeof(card)) {
    if ((errno != ETOOMANYREFS && errno != EINTR) || Clock::now() > deadline)
      throw Error(fmt::format("the rendezvous broke off: {}", std::strerror(errno)));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool wait_readable(int descriptor, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{descriptor, POLLIN, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<long>(left, 0, INT_MAX)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

// False when nothing came in time or the other side is gone.
bool receive_card(int from, Clock::time_point deadline, Card& card, int& descriptor) {
  if (!wait_readable(from, deadline)) return false;
  Envelope envelope(&card);
  msghdr& message = envelope.message;
  ssize_t received = 0;
  do {
    received = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received != sizeof(card)) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return false;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
  return card.version == kVersion;
}

bool same_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == getuid();
}

std::string missing_ranks(const std::vector<Socket>& guests) {
  std::vector<std::string> missing;
  for (std::size_t r = 1; r < guests.size(); ++r)
    if (!guests[r]) missing.push_back(std::to_string(r));
  return join_words(missing);
}

Meeting host(const std::string& job, Rank size, int descriptor, Clock::time_point deadline) {
  const Socket door = make_socket();
  sockaddr_un address{};
  const socklen_t length = fill_address(job, address);
  if (bind(door.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw Error(errno == EADDRINUSE
                    ? fmt::format("another rank 0 of the job '{}' is running on this host", job)
                    : fmt::format("cannot open the rendezvous: {}", std::strerror(errno)));
  listen(door.get(), size);
  Meeting meeting;
  meeting.descriptors.assign(static_cast<std::size_t>(size), -1);
  meeting.pids.assign(static_cast<std::size_t>(size), 0);
  meeting.descriptors[0] = dup(descriptor);
  meeting.pids[0] = getpid();
  std::vector<Socket> guests(static_cast<std::size_t>(size));
  for (Rank come = 1; come < size;) {
    if (!wait_readable(door.get(), deadline))
      throw Error(fmt::format("these of {} ranks did not join the job '{}' in time: {}", size, job,
                              missing_ranks(guests)));
    Socket guest(accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!guest && errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
      throw Error(fmt::format("rank 0 of the job '{}' cannot let others in: {}", job, std::strerror(errno)));
    Card card;
    int theirs = -1;
    if (!guest || !same_user(guest.get()) || !receive_card(guest.get(), deadline, card, theirs)) continue;
    if (card.size != size || card.rank < 1 || card.rank >= size ||
        guests[static_cast<std::size_t>(card.rank)]) {
      close(theirs);
      throw Error(fmt::format(
          "a process joined the job '{}' as rank {} of {}, which does not fit {} ranks with each number once",
          job, card.rank, card.size, size));
    }
    const auto r = static_cast<std::size_t>(card.rank);
    meeting.descriptors[r] = theirs;
    meeting.pids[r] = card.pid;
    guests[r] = std::move(guest);
    ++come;
  }
  for (std::size_t to = 1; to < guests.size(); ++to)
    for (std::size_t r = 0; r < guests.size(); ++r)
      send_card(guests[to].get(), {kVersion, static_cast<Rank>(r), size, meeting.pids[r]},
                meeting.descriptors[r], deadline);
  return meeting;
}

Meeting visit(const std::string& job, Rank rank, Rank size, int descriptor, Clock::time_point deadline) {
  sockaddr_un address{};
  const socklen_t length = fill_address(job, address);
  const Socket socket = make_socket();
  while (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != ENOENT && errno != EINTR)
      throw Error(fmt::format("cannot reach rank 0 of the job '{}': {}", job, std::strerror(errno)));
    if (Clock::now() > deadline) throw Error(fmt::format("rank 0 of the job '{}' did not come in time", job));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  send_card(socket.get(), {kVersion, rank, size, getpid()}, descriptor, deadline);
  Meeting meeting;
  for (Rank r = 0; r < size; ++r) {
    Card card;
    int theirs = -1;
    if (!receive_card(socket.get(), deadline, card, theirs))
      throw Error(fmt::format(
          "the job '{}' did not come together in time (rank 0 has gone, or other ranks are missing)", job));
    meeting.descriptors.push_back(theirs);
    meeting.pids.push_back(card.pid);
  }
  return meeting;
}

}  // namespace

Meeting meet(const std::string& job, Rank rank, Rank size, int descriptor,
             std::chrono::milliseconds timeout) {
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size)
    throw InvalidArgument(
        fmt::format("rank {} of {} is not possible; 1 to {} ranks, numbered from 0", rank, size, kMostRanks));
  const auto deadline = Clock::now() + timeout;
  return rank == 0 ? host(job, size, descriptor, deadline) : visit(job, rank, size, descriptor, deadline);
}

}  // namespace starling::local
