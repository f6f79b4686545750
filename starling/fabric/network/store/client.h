#pragma once

#include <mutex>

#include "starling/fabric/network/store/address.h"
#include "starling/fabric/network/store/entries.h"
#include "starling/launch/fd.h"

namespace starling::network {

/// What a rank sees of its job's store. May be used by many threads: each question has a connection of its
/// own, which the next one uses again. Whatever goes wrong is an Error that names the store and what
/// happened.
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

 private:
  launch::Fd connect(bool first) const;
  launch::Fd take_connection();
  StoreAnswer ask(const StoreRequest& request);

  const StoreAddress where_;
  const std::string token_;
  const std::chrono::milliseconds timeout_;
  const StoreLimits limits_;
  std::mutex mutex_;
  std::vector<launch::Fd> idle_;  // connections that nobody uses right now
};

}  // namespace starling::network
