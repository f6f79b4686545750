#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "starling/base/error.h"
#include "starling/fabric/network/store/address.h"
#include "starling/launch/fd.h"

namespace starling::network {

using StoreClock = std::chrono::steady_clock;

/// A socket that listens, and where.
struct StoreListener {
  launch::Fd socket;
  StoreAddress where;

  /// The same socket for another owner.
  StoreListener share() const;
};

/// Listens on exactly this numeric address and a free port.
StoreListener listen_on(const std::string& address);

/// One attempt at every address of the host; an empty descriptor, and `why`, when none of them takes it.
launch::Fd connect_to(const StoreAddress& to, StoreClock::time_point deadline, std::string& why);

/// The other side has closed the connection, or it broke.
class Disconnected : public Error {
 public:
  using Error::Error;
};

/// The whole of it, or Disconnected, or Error when the deadline passes.
void send_all(int socket, std::string_view bytes, StoreClock::time_point deadline);
std::string receive_all(int socket, std::size_t bytes, StoreClock::time_point deadline);

/// Small questions go at once, and a host that vanished without a word is noticed within a minute.
void tune(int socket);

}  // namespace starling::network
