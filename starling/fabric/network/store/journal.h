#pragma once

#include <functional>
#include <string>

#include "starling/launch/fd.h"

namespace starling::network {

/// The changes of a store's entries, in a file without a name that outlives the process which serves the
/// store: another one goes on from there. A change is written before it is answered, so nothing that a client
/// was told is lost with the process.
class StoreJournal {
 public:
  /// None: changes are not kept.
  StoreJournal() = default;
  /// Shares the file with whoever else has the descriptor. Throws Error where there is no memory for one.
  static StoreJournal create();
  StoreJournal share() const;

  /// Tells all changes that were written completely, in order; value is nullptr where a key was removed.
  /// Throws Error when the journal is not complete.
  using Change = std::function<void(const std::string& key, const std::string* value)>;
  void replay(const Change& change);

  /// Where the file cannot grow, the journal is marked as incomplete, and kept no longer.
  void write(const std::string& key, const std::string* value);

 private:
  explicit StoreJournal(launch::Fd file) : file_(std::move(file)) {}

  launch::Fd file_;
  std::size_t end_ = 0;  // of the last complete change
};

}  // namespace starling::network
