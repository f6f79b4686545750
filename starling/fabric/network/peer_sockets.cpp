#include "starling/fabric/network/peer_sockets.h"

#include <algorithm>
#include <charconv>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <string_view>
#include <sys/socket.h>

#include "starling/base/name_hash.h"

namespace starling::fabric::network {
namespace {

struct ConnectionIds {
  std::uint64_t mine;
  std::uint64_t theirs;
};

std::uint64_t hash_end(const sockaddr_storage& address, std::uint64_t before) {
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

// Empty if the descriptor is not a TCP connection.
std::optional<ConnectionIds> connection_ids(int descriptor) {
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
  return ConnectionIds{hash_end(theirs, hash_end(mine, kStart)), hash_end(mine, hash_end(theirs, kStart))};
}

}  // namespace

std::vector<std::uint64_t> PeerSockets::find() {
  all_.clear();
  std::vector<std::uint64_t> ids;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return ids;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    int descriptor = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (read.ec != std::errc() || read.ptr != name.data() + name.size()) continue;
    if (const auto found = connection_ids(descriptor)) {
      all_.push_back({descriptor, found->theirs});
      ids.push_back(found->mine);
    }
  }
  closedir(folder);
  return ids;
}

void PeerSockets::set_peer_ids(Rank peer, std::span<const std::uint64_t> ids) {
  std::vector<Connection>& known = of_peer_[static_cast<std::size_t>(peer)];
  known.clear();
  for (const Connection& one : all_)
    if (std::find(ids.begin(), ids.end(), one.theirs) != ids.end()) known.push_back(one);
}

TcpContact PeerSockets::contact(Rank peer, std::chrono::nanoseconds limit) {
  std::vector<Connection>& known = of_peer_[static_cast<std::size_t>(peer)];
  TcpContact contact = TcpContact::unknown;
  for (std::size_t i = 0; i < known.size();) {
    // Engines close connections, and descriptor numbers are reused.
    const auto found = connection_ids(known[i].descriptor);
    if (!found || found->theirs != known[i].theirs) {
      known.erase(known.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(known[i].descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0) {
      const bool unacknowledged = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
      if (unacknowledged && std::chrono::milliseconds(info.tcpi_last_ack_recv) > limit)
        return TcpContact::unanswered;
      contact = TcpContact::acknowledged;
    }
    ++i;
  }
  return contact;
}

}  // namespace starling::fabric::network
