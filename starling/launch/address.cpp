#include "starling/launch/address.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/os/descriptor.h"

namespace starling::launch {
namespace {

struct InterfaceAddress {
  std::string interface, address;
  int family;
};

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0)
    throw Error(fmt::format("cannot list this machine's interfaces: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.push_back({one->ifa_name, numeric(one->ifa_addr, size), family});
  }
  std::ranges::stable_sort(found, {}, [](const InterfaceAddress& one) { return one.family != AF_INET; });
  return found;
}

}  // namespace

std::optional<std::string> address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* all = nullptr;
  if (getaddrinfo(host.c_str(), "9", &wanted, &all) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(all, freeaddrinfo);
  for (const addrinfo* one = all; one != nullptr; one = one->ai_next) {
    // connect() on a datagram socket chooses the route without sending a packet.
    const Descriptor socket(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage mine{};
    socklen_t size = sizeof mine;
    auto* any = reinterpret_cast<sockaddr*>(&mine);
    if (!socket || connect(socket.get(), one->ai_addr, one->ai_addrlen) != 0 ||
        getsockname(socket.get(), any, &size) != 0)
      continue;
    if (std::string text = numeric(any, size); !text.empty()) return text;
  }
  return std::nullopt;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string address_of_interface(const std::string& name) {
  std::vector<std::string> names;
  for (const InterfaceAddress& one : interface_addresses()) {
    if (one.interface == name) return one.address;
    if (std::ranges::find(names, one.interface) == names.end()) names.push_back(one.interface);
  }
  throw InvalidArgument(fmt::format("this machine has no interface '{}' with an address; valid: {}", name,
                                    names.empty() ? "none" : join_words(names)));
}

std::string interface_with(const std::string& address) {
  for (const InterfaceAddress& one : interface_addresses())
    if (one.address == address) return one.interface;
  return "";
}

}  // namespace starling::launch
