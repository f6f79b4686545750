#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "starling/base/error.h"
#include "starling/base/os/descriptor.h"
#include "starling/fabric/network/store/address.h"

namespace starling::fabric::network {

using StoreClock = std::chrono::steady_clock;

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
