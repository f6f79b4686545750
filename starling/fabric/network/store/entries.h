#pragma once

#include <functional>
#include <map>
#include <optional>

#include "starling/base/floors.h"
#include "starling/fabric/network/store/protocol.h"

namespace starling::fabric::network {

/// The resource limits of a store.
struct StoreLimits {
  std::size_t key = 4096;                     // bytes
  std::size_t value = std::size_t{16} << 20;  // bytes
  std::size_t memory = std::size_t{1} << 30;  // bytes: entries and buffers of connections
  std::size_t clients = 16'384;
  std::size_t unauthenticated = 256;                       // clients that have not authenticated yet
  std::chrono::milliseconds authentication_timeout{5000};  // for each of them
  std::chrono::milliseconds authentication_grace{50};      // guaranteed to each, however many connect

  std::size_t request() const { return 2 * value + (std::size_t{1} << 20); }
};

/// Whether a request has the number of keys and values that its operation takes, none of them too long.
bool well_formed(const StoreRequest& request, const StoreLimits& limits);

/// The key-value pairs of a store and the operations on them. Not thread-safe.
class StoreEntries {
 public:
  /// Called for every change before it is answered: the key and its new value, or nullptr for a removal.
  using Changed = std::function<void(const std::string& key, const std::string* value)>;
  explicit StoreEntries(const StoreLimits& limits, Changed changed = nullptr)
      : limits_(limits), changed_(std::move(changed)) {}

  /// Answers a well-formed request; empty while keys that it waits for are missing. `other_bytes`: memory in
  /// use apart from the entries.
  std::optional<StoreAnswer> answer(const StoreRequest& request, std::size_t other_bytes = 0);

  /// The first of these keys that does not exist; nullptr if all exist.
  const std::string* missing(const std::vector<std::string>& keys) const;

  std::size_t bytes() const { return bytes_; }

 private:
  StoreAnswer put(const std::string& key, std::string value, StoreAnswer answer, std::size_t other_bytes);
  StoreAnswer add(const StoreRequest& request, std::size_t other_bytes);
  StoreAnswer compare_set(const StoreRequest& request, std::size_t other_bytes);
  bool remove(const std::string& key);

  StoreLimits limits_;
  Changed changed_;
  std::map<std::string, std::string> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace starling::fabric::network
