#include "starling/fabric/network/store/sockets.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace starling::fabric::network {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Addresses, and getaddrinfo's error or 0.
std::pair<AddressList, int> addresses_of(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  return {AddressList(error == 0 ? found : nullptr, freeaddrinfo), error};
}

std::uint16_t& port_of(sockaddr& address) {
  return address.sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

bool is_wildcard(const sockaddr& address) {
  if (address.sa_family == AF_INET6)
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
}

Descriptor stream_socket(int family) {
  return Descriptor(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Whether the socket becomes readable or writable, or fails, before the deadline.
bool ready_before(int socket, short events, StoreClock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - StoreClock::now()).count();
    pollfd entry{socket, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX)));
    if (ready > 0) return true;
    if (ready == 0 && left <= INT_MAX) return false;
  }
}

}  // namespace

std::string StoreAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

StoreAddress read_store_address(const std::string& text) {
  StoreAddress address;
  if (const std::size_t colon = text.rfind(':'); colon != std::string::npos) {
    address.host = text.substr(0, colon);
    if (address.host.starts_with('[') && address.host.ends_with(']'))
      address.host = address.host.substr(1, address.host.size() - 2);
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + colon + 1, end, address.port);
    if (result.ec == std::errc() && result.ptr == end && address.port != 0 && !address.host.empty())
      return address;
  }
  throw InvalidArgument(fmt::format("'{}' is not the address:port of a store", text));
}

StoreListener StoreListener::share() const {
  return {Descriptor(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)), where};
}

StoreListener listen_on(const std::string& address) {
  const auto [found, unknown] = addresses_of(address, AI_NUMERICHOST | AI_PASSIVE);
  if (unknown != 0)
    throw InvalidArgument(fmt::format("a store listens on an IPv4 or IPv6 address, not on '{}'", address));
  if (is_wildcard(*found->ai_addr))
    throw InvalidArgument(
        fmt::format("{} is the address of all interfaces; a store listens on the address of one", address));
  Descriptor listener = stream_socket(found->ai_family);
  sockaddr_storage bound{};
  auto* any = reinterpret_cast<sockaddr*>(&bound);
  socklen_t size = sizeof(bound);
  if (!listener || bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0 || getsockname(listener.get(), any, &size) != 0)
    throw Error(fmt::format("a store cannot listen on {}: {}", address, std::strerror(errno)));
  return {std::move(listener), {address, ntohs(port_of(*any))}};
}

Descriptor connect_to(const StoreAddress& to, StoreClock::time_point deadline, std::string& why) {
  const auto [found, unknown] = addresses_of(to.host, 0);
  if (unknown != 0) why = gai_strerror(unknown);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    Descriptor made = stream_socket(one->ai_family);
    port_of(*one->ai_addr) = htons(to.port);
    int error = connect(made.get(), one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof(error);
      error = ETIMEDOUT;
      if (ready_before(made.get(), POLLOUT, deadline))
        getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      tune(made.get());
      return made;
    }
    why = std::strerror(error);
  }
  return {};
}

void send_all(int socket, std::string_view bytes, StoreClock::time_point deadline) {
  while (!bytes.empty()) {
    if (!ready_before(socket, POLLOUT, deadline)) throw Error("it does not read in time");
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) throw Disconnected(std::strerror(errno));
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string receive_all(int socket, std::size_t bytes, StoreClock::time_point deadline) {
  std::string received(bytes, '\0');
  for (std::size_t at = 0; at < bytes;) {
    if (!ready_before(socket, POLLIN, deadline)) throw Error("it does not answer in time");
    const ssize_t got = recv(socket, received.data() + at, bytes - at, 0);
    if (got == 0) throw Disconnected("it closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR) throw Disconnected(std::strerror(errno));
    if (got > 0) at += static_cast<std::size_t>(got);
  }
  return received;
}

void tune(int socket) {
  const auto set = [socket](int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace starling::fabric::network
