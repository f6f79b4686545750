#pragma once

#include <cstddef>
#include <string>

#include "starling/base/types.h"
#include "starling/launch/fd.h"

// The ranks that have exited, in memory that a launcher of this host shares with its ranks: a byte for each
// rank of the job. Ranks that wait for others to join look there.

namespace starling::launch {

inline constexpr const char* kExitsVariable = "STARLING_EXITS";

/// The launcher's side. Where there is no memory for it, nobody is told anything.
class ExitPage {
 public:
  explicit ExitPage(Rank ranks);

  /// What ranks find in STARLING_EXITS, "" for nothing: a file of this process, which they may read.
  const std::string& path() const { return path_; }
  void mark(Rank rank);

 private:
  Fd file_;
  std::string path_;
};

/// A rank's side.
class Exits {
 public:
  /// Of the launcher that has started this process; nothing where it told no file.
  Exits();

  bool has(Rank rank) const;

 private:
  Fd file_;
};

}  // namespace starling::launch
