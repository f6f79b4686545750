#pragma once

#include <cstddef>
#include <string>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

// The exited ranks of a job, in memory that the launcher of this host shares with its ranks: one byte per
// rank. Ranks check it while they wait for others to join.

namespace starling::launch {

/// The launcher's side. If there is no memory for it, exits are not shared.
class ExitedRanksPage {
 public:
  explicit ExitedRanksPage(Rank ranks);

  /// The value of STARLING_EXITS: the path of a file that ranks may read; "" if there is none.
  const std::string& path() const { return path_; }
  void mark(Rank rank);

 private:
  Descriptor file_;
  std::string path_;
};

/// A rank's side. Thread-safe.
class ExitedRanks {
 public:
  /// Opens the page of the launcher that started this process; empty if there is none.
  ExitedRanks();

  bool has(Rank rank) const;

 private:
  Descriptor file_;
};

}  // namespace starling::launch
