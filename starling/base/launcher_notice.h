#pragma once

#include "starling/base/environment.h"

namespace starling {

/// A notice that a rank sends to its launcher. `starling run` gives its ranks one end of a socket pair, named
/// in STARLING_LAUNCHER as NUMBER:DEVICE:INODE, and reads one-byte notices from the other end.
enum class LauncherNotice : char {
  continues_after_failure = 'c',  // from now on the other ranks continue if a rank dies
  needs_all_ranks = 's',          // the opposite, which launchers assume by default
  joins = 'j',  // the rank is about to join a flock; its reaction to failures is not known yet
  joined = 'J',
};

/// Whether this process has a launcher: the socket that STARLING_LAUNCHER names is open.
bool has_launcher();

/// Sends a notice; does nothing if there is no launcher. Never blocks.
void tell_launcher(LauncherNotice notice);

}  // namespace starling
