#include "starling/fabric/network/peer_sockets.h"

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <string_view>
#include <sys/socket.h>

#include "starling/fabric/message.h"

namespace starling::network {
namespace {

struct Ends {
  std::uint64_t mine;
  std::uint64_t theirs;
};

std::uint64_t end_word(const sockaddr_storage& address, std::uint64_t before) {
  const void* host = nullptr;
  std::size_t bytes = 0;
  std::uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    host = &four.sin_addr;
    bytes = sizeof(four.sin_addr);
    port = four.sin_port;
  } else {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    host = &six.sin6_addr;
    bytes = sizeof(six.sin6_addr);
    port = six.sin6_port;
  }
  const auto add = [&](const void* data, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      before = (before ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3u;
  };
  add(host, bytes);
  add(&port, sizeof(port));
  return before;
}

// Nothing where it is no TCP connection.
std::optional<Ends> ends_of(int descriptor) {
  int kind = 0;
  socklen_t length = sizeof(kind);
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &kind, &length) != 0 || kind != SOCK_STREAM)
    return std::nullopt;
  sockaddr_storage mine{};
  sockaddr_storage theirs{};
  socklen_t mine_length = sizeof(mine);
  socklen_t theirs_length = sizeof(theirs);
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&mine), &mine_length) != 0 ||
      getpeername(descriptor, reinterpret_cast<sockaddr*>(&theirs), &theirs_length) != 0 ||
      (mine.ss_family != AF_INET && mine.ss_family != AF_INET6) || mine.ss_family != theirs.ss_family)
    return std::nullopt;
  constexpr std::uint64_t kStart = hash_name("connection");
  return Ends{end_word(theirs, end_word(mine, kStart)), end_word(mine, end_word(theirs, kStart))};
}

}  // namespace

std::vector<std::uint64_t> PeerSockets::find() {
  all_.clear();
  std::vector<std::uint64_t> words;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return words;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    int descriptor = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (read.ec != std::errc() || read.ptr != name.data() + name.size()) continue;
    if (const auto ends = ends_of(descriptor)) {
      all_.push_back({descriptor, ends->theirs});
      words.push_back(ends->mine);
    }
  }
  closedir(folder);
  return words;
}

void PeerSockets::told(Rank peer, std::span<const std::uint64_t> words) {
  std::vector<Connection>& known = of_peer_[static_cast<std::size_t>(peer)];
  known.clear();
  for (const Connection& one : all_)
    if (std::find(words.begin(), words.end(), one.theirs) != words.end()) known.push_back(one);
}

Contact PeerSockets::contact(Rank peer, std::chrono::nanoseconds limit) {
  std::vector<Connection>& known = of_peer_[static_cast<std::size_t>(peer)];
  Contact contact = Contact::unknown;
  for (std::size_t i = 0; i < known.size();) {
    // Engines close connections, and numbers of descriptors return.
    const auto ends = ends_of(known[i].descriptor);
    if (!ends || ends->theirs != known[i].theirs) {
      known.erase(known.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(known[i].descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) {
      const bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
      if (waits && std::chrono::milliseconds(info.tcpi_last_ack_recv) > limit) return Contact::unanswered;
      contact = Contact::acknowledged;
    }
    ++i;
  }
  return contact;
}

}  // namespace starling::network
