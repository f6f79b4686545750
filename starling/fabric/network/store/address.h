#pragma once

#include <cstdint>
#include <string>

namespace starling::fabric::network {

/// The address of a store: a host name, IPv4 or IPv6 address, and a port.
struct StoreAddress {
  std::string host;
  std::uint16_t port = 0;

  std::string text() const;
};

/// Parses "10.0.0.1:29500", "node1:29500" or "[fe80::1%eth0]:29500"; throws InvalidArgument otherwise.
StoreAddress read_store_address(const std::string& text);

}  // namespace starling::fabric::network
