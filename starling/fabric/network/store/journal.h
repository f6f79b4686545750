#pragma once

#include <functional>
#include <string>

#include "starling/base/os/descriptor.h"

namespace starling::fabric::network {

/// The log of changes to a store's entries, in a memfd that outlives the process that serves the store: a new
/// process continues from there. A change is written before it is answered, so no acknowledged change is lost
/// with the process. Not thread-safe.
class StoreJournal {
 public:
  /// No journal: changes are not recorded.
  StoreJournal() = default;
  /// Throws Error if there is no memory for it.
  static StoreJournal create();
  /// The same file for another owner.
  StoreJournal share() const;

  /// Calls `change` for every completely written change, in order; the value is nullptr for a removal. Throws
  /// Error if the journal is incomplete.
  using Change = std::function<void(const std::string& key, const std::string* value)>;
  void replay(const Change& change);

  /// If the file cannot grow, marks the journal as incomplete and stops writing it.
  void write(const std::string& key, const std::string* value);

 private:
  explicit StoreJournal(Descriptor file) : file_(std::move(file)) {}

  Descriptor file_;
  std::size_t end_ = 0;  // of the last complete change
};

}  // namespace starling::fabric::network
