#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling {

/// What an operation expects from one source. The k-th message from i to j under a name meets the k-th that j
/// expects from i.
struct Expectation {
  Rank source = 0;
  std::uint64_t sequence = 0;
  std::uint64_t name = 0;
  std::uint64_t schedule = 0;
  std::uint64_t count = 0;
  bool any_count = false;  // the sender decides, as in an all-gather of different lengths
  Step step = 0;
  std::uint8_t dtype = 0;
};

/// Matching without a coordinator, above all fabrics: sequence numbers per name and pair, the queue of
/// messages that came before they were expected, and the complaints that carry a receiver's mismatch back to
/// the sender. Thread-safe.
class Mailbox {
 public:
  explicit Mailbox(std::shared_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {}

  Fabric& fabric() const { return *fabric_; }

  /// The number of the next message under `name` to, or from, `peer`.
  std::uint64_t next_to(Rank peer, std::uint64_t name) { return next(sent_, peer, name); }
  std::uint64_t next_from(Rank peer, std::uint64_t name) { return next(expected_, peer, name); }

  /// The expected message if it is here. Throws Mismatch, on both sides, when it is not what was expected;
  /// `operation` names it.
  std::optional<Arrival> take(const Expectation& expectation, const std::string& operation);

  /// Throws what a receiver has complained about, if anybody has.
  void raise_complaints();

 private:
  struct Key {
    Rank peer;
    std::uint64_t name;
    std::uint64_t sequence;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>(
          (key.name ^ static_cast<std::uint64_t>(key.peer) * 0x9E3779B97F4A7C15u) +
          key.sequence * 0xD1B54A32D192ED03u);
    }
  };
  using Counters = std::unordered_map<Key, std::uint64_t, KeyHash>;

  std::uint64_t next(Counters& counters, Rank peer, std::uint64_t name);
  void drain(Rank source);
  void complain(Rank source, const Expectation& expectation, const std::string& text);

  std::shared_ptr<Fabric> fabric_;
  std::mutex mutex_;
  Counters sent_;
  Counters expected_;
  std::unordered_map<Key, Arrival, KeyHash> early_;  // came before they were expected
  std::vector<std::string> complaints_;
};

}  // namespace starling
