#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "starling/base/error.h"
#include "starling/base/os/descriptor.h"

namespace starling::fabric::network {

using StoreClock = std::chrono::steady_clock;

/// The address of a store: a host name, IPv4 or IPv6 address, and a port.
struct StoreAddress {
  std::string host;
  std::uint16_t port = 0;

  std::string text() const;
};

/// Parses "10.0.0.1:29500", "node1:29500" or "[fe80::1%eth0]:29500"; throws InvalidArgument otherwise.
StoreAddress read_store_address(const std::string& text);

/// A listening socket and its address.
struct StoreListener {
  Descriptor socket;
  StoreAddress where;

  /// The same socket for another owner.
  StoreListener share() const;
};

/// Listens on exactly this numeric address and a free port.
StoreListener listen_on(const std::string& address);

/// Tries every address of the host once; returns an empty descriptor and sets `why` if none accepts.
Descriptor connect_to(const StoreAddress& to, StoreClock::time_point deadline, std::string& why);

/// The other side has closed the connection, or it failed.
class Disconnected : public Error {
 public:
  using Error::Error;
};

/// Transfers all bytes; throws Disconnected, or Error when the deadline passes.
void send_all(int socket, std::string_view bytes, StoreClock::time_point deadline);
std::string receive_all(int socket, std::size_t bytes, StoreClock::time_point deadline);

/// Sets TCP options: small requests are sent at once, and a vanished host is noticed within a minute.
void tune(int socket);

}  // namespace starling::fabric::network
