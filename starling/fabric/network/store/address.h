#pragma once

#include <cstdint>
#include <string>

namespace starling::network {

/// Where a store listens: a name, an IPv4 or an IPv6 address, and a port.
struct StoreAddress {
  std::string host;
  std::uint16_t port = 0;

  std::string text() const;
};

/// "10.0.0.1:29500", "node1:29500" or "[fe80::1%eth0]:29500"; throws InvalidArgument for others.
StoreAddress read_store_address(const std::string& text);

}  // namespace starling::network
