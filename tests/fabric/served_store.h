#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>
#include <thread>

#include "starling/fabric/network/store/client.h"
#include "starling/fabric/network/store/server.h"

namespace starling::fabric::network {

inline constexpr std::chrono::milliseconds kLong{20'000};  // a failing test's timeout

/// A store served by a thread of this process.
class ServedStore {
 public:
  explicit ServedStore(const StoreLimits& limits = {}, const std::string& address = "127.0.0.1");
  ~ServedStore();
  ServedStore(const ServedStore&) = delete;
  ServedStore& operator=(const ServedStore&) = delete;

  std::string where() const { return server_.where().text(); }
  const StoreAddress& address() const { return server_.where(); }
  const std::string& token() const { return token_; }
  /// Its constructor fails the test by throwing.
  StoreClient client() const { return {where(), token_, kLong}; }

 private:
  const std::string token_ = "a token for tests";
  StoreServer server_;
  int control_ = -1;
  std::thread thread_;
};

/// A connection that can send arbitrary bytes.
class RawConnection {
 public:
  /// Connects and receives the greeting.
  explicit RawConnection(const ServedStore& store);
  /// Proves that it knows the token.
  void authenticate();

  void send(const std::string& bytes);
  /// Receives bytes; fewer if the store closes the connection.
  std::string receive(std::size_t bytes);
  /// Whether the store closes the connection soon.
  bool dropped();

  const std::string& store_nonce() const { return store_nonce_; }

 private:
  std::string token_;
  Descriptor socket_;
  std::string store_nonce_;
};

/// The message of the exception that a call threw; "" if none.
template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace starling::fabric::network
