#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "starling/base/os/descriptor.h"
#include "starling/fabric/network/store/entries.h"
#include "starling/fabric/network/store/sockets.h"

namespace starling::fabric::network {

/// A client of a job's store. Thread-safe: each concurrent request uses its own connection; idle connections
/// are reused. If the store's process died and a new one has replaced it, requests are repeated; an add()
/// that was in flight may then count twice. All failures are Errors that name the store and the operation.
class StoreClient {
 public:
  /// Throws Error if the store cannot be reached within `timeout` or has another job's token. `timeout` also
  /// limits requests that do not wait for keys.
  StoreClient(const std::string& where, std::string token, std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::string& value);
  /// Waits until the key exists.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  /// Adds to a number and returns the sum.
  std::int64_t add(const std::string& key, std::int64_t number);
  /// Sets the key if it has the expected value ("" also matches a missing key); returns its value afterwards.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  /// Whether all keys exist.
  bool check(const std::vector<std::string>& keys);
  /// Whether the key existed.
  bool remove(const std::string& key);
  std::int64_t count();

  /// Blocks until the store is permanently gone, and returns the reason; "" if the descriptor `end` becomes
  /// readable first.
  std::string wait_for_end(int end) const;

 private:
  Descriptor connect(bool first) const;
  Descriptor take_connection();
  void drop_idle();
  StoreAnswer exchange(int socket, const StoreRequest& request, StoreClock::time_point deadline) const;
  StoreAnswer send(const StoreRequest& request);

  const StoreAddress where_;
  const std::string token_;
  const std::chrono::milliseconds timeout_;
  const StoreLimits limits_;
  std::mutex mutex_;
  std::vector<Descriptor> idle_;  // unused connections
};

/// A thread that reports when a job's store is permanently gone. It sleeps on its own connection.
class StoreWatch {
 public:
  /// `gone` is called at most once, on that thread, with the reason.
  StoreWatch(std::shared_ptr<const StoreClient> client, std::function<void(const std::string&)> gone);
  ~StoreWatch();
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

 private:
  Descriptor end_;  // closing it ends the thread
  std::thread thread_;
  int forks_;
};

}  // namespace starling::fabric::network
