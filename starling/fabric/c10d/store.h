#pragma once

#include <chrono>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/floors.h"
#include "starling/fabric/c10d/engine.h"

namespace starling::fabric::c10d_engine {

/// The values of torch's stores.
using StoreBytes = std::vector<std::uint8_t>;

inline StoreBytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}
inline std::string text_of(const StoreBytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

/// A client of the launcher's store, which requires the job's token, with the interface of torch's stores.
StorePtr make_token_store(const std::string& where, const std::string& token,
                          std::chrono::milliseconds timeout);

/// Reads and writes texts in a store without waiting for keys inside it, since a waiting call would block
/// other users of the same connection. Callers poll instead.
class PollingStore {
 public:
  explicit PollingStore(StorePtr store) : store_(std::move(store)) {}

  void write(const std::string& key, const std::string& text) { store_->set(key, bytes_of(text)); }
  bool has(const std::string& key) { return store_->check({key}); }
  bool has_all(const std::vector<std::string>& keys) { return store_->check(keys); }
  /// "" if the key does not exist.
  std::string read(const std::string& key) {
    if (!has(key)) return {};
    return text_of(store_->get(key));
  }
  std::uint64_t number(const std::string& key) {
    std::uint64_t value = 0;
    std::istringstream(read(key)) >> value;
    return value;
  }
  /// Adds to a counter and returns its value.
  std::uint64_t count(const std::string& key, std::int64_t more) {
    return static_cast<std::uint64_t>(store_->add(key, more));
  }
  /// Returns the first text that any process proposed under this key.
  std::string agree(const std::string& key, const std::string& proposal) {
    return text_of(store_->compareSet(key, {}, bytes_of(proposal)));
  }

 private:
  StorePtr store_;
};

}  // namespace starling::fabric::c10d_engine
