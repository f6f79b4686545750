#pragma once

#include <functional>
#include <map>
#include <optional>

#include "starling/fabric/network/store/protocol.h"

namespace starling::network {

struct StoreLimits {
  std::size_t key = 4096;                     // bytes
  std::size_t value = std::size_t{16} << 20;  // bytes
  std::size_t memory = std::size_t{1} << 30;  // bytes: entries, and what is on its way from and to clients
  std::size_t clients = 16'384;
  std::size_t strangers = 256;               // clients that have not proved yet that they know the token
  std::chrono::milliseconds patience{5000};  // the most that each of them has for it
  std::chrono::milliseconds least{50};       // and the least, however many others come

  std::size_t request() const { return 2 * value + (std::size_t{1} << 20); }
};

/// Whether a request has the keys and values that its operation takes, none of them too long.
bool well_formed(const StoreRequest& request, const StoreLimits& limits);

/// What a store holds, and what its operations do with it.
class StoreEntries {
 public:
  /// Told of every change before it is answered: the key and its new value, nullptr where it is removed.
  using Changed = std::function<void(const std::string& key, const std::string* value)>;
  explicit StoreEntries(const StoreLimits& limits, Changed changed = nullptr)
      : limits_(limits), changed_(std::move(changed)) {}

  /// To a well formed request; nothing while keys are missing that it waits for. `elsewhere`: bytes of memory
  /// that are in use beside the entries.
  std::optional<StoreAnswer> answer(const StoreRequest& request, std::size_t elsewhere = 0);

  /// The first of these that is not there; nullptr where all are.
  const std::string* missing(const std::vector<std::string>& keys) const;

  std::size_t bytes() const { return bytes_; }

 private:
  StoreAnswer put(const std::string& key, std::string value, StoreAnswer answer, std::size_t elsewhere);
  StoreAnswer add(const StoreRequest& request, std::size_t elsewhere);
  StoreAnswer compare_set(const StoreRequest& request, std::size_t elsewhere);
  bool remove(const std::string& key);

  StoreLimits limits_;
  Changed changed_;
  std::map<std::string, std::string> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace starling::network
