#pragma once

#include <mutex>

#include "starling/fabric/network/store/address.h"
#include "starling/fabric/network/store/entries.h"
#include "starling/fabric/network/store/sockets.h"
#include "starling/launch/fd.h"

namespace starling::network {

/// What a rank sees of its job's store. May be used by many threads: each question has a connection of its
/// own, which the next one uses again. Where the store's process died and another one goes on in its place,
/// questions are asked again; an add() that was on its way may then count twice. Whatever goes wrong is an
/// Error that names the store and what happened.
class StoreClient {
 public:
  /// Throws Error when the store cannot be reached within `timeout`, or has another job's token. Questions
  /// that do not wait for keys have as much time for their answer.
  StoreClient(const std::string& where, std::string token, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::string& value);
  /// Waits until the key is there.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  /// Returns the sum.
  std::int64_t add(const std::string& key, std::int64_t number);
  /// Sets the key if its value is the expected one, which is "" where there is none; returns its value.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  /// Whether all of them are there.
  bool check(const std::vector<std::string>& keys);
  /// Whether it was there.
  bool remove(const std::string& key);
  std::int64_t count();

  /// Blocks until the store is gone for good, and returns why; "" when something comes through `end`, a
  /// descriptor, before.
  std::string wait_for_end(int end) const;

 private:
  launch::Fd connect(bool first) const;
  launch::Fd take_connection();
  void drop_idle();
  StoreAnswer exchange(int socket, const StoreRequest& request, StoreClock::time_point deadline) const;
  StoreAnswer ask(const StoreRequest& request);

  const StoreAddress where_;
  const std::string token_;
  const std::chrono::milliseconds timeout_;
  const StoreLimits limits_;
  std::mutex mutex_;
  std::vector<launch::Fd> idle_;  // connections that nobody uses right now
};

}  // namespace starling::network
