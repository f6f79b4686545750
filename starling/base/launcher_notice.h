#pragma once

#include "starling/base/environment.h"

namespace starling {

/// A notice from a rank to the launcher that started it. `starling run` gives its ranks one end of a socket
/// pair, named by STARLING_LAUNCHER as NUMBER:DEVICE:INODE, and reads one-byte notices from the other end.
enum class LauncherNotice : char {
  continues_after_failure = 'c',  // from now on the other ranks continue when a rank dies
  needs_all_ranks = 's',          // the opposite, which launchers assume by default
  joins = 'j',  // the rank is about to join a flock: what happens on failures is not decided yet
  joined = 'J',
};

/// Whether there is a launcher: the socket that the variable names is open in this process.
bool has_launcher();

/// Sends a notice; does nothing if there is no launcher. Never blocks.
void tell_launcher(LauncherNotice notice);

}  // namespace starling
