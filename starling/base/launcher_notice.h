#pragma once

namespace starling {

/// What a rank may tell the launcher that started it. `starling run` gives its ranks the end of a socket
/// pair, named by the variable below as NUMBER:DEVICE:INODE, and reads notices of one byte from the other
/// end.
enum class LauncherNotice : char {
  goes_on = 'c',          // from now on the survivors of a death continue: it is not the end of the job
  needs_everybody = 's',  // the opposite, which is what a launcher assumes
};

constexpr const char* kLauncherVariable = "STARLING_LAUNCHER";

/// Whether a launcher listens: the socket that the variable names is still open in this process.
bool has_launcher();

/// Tells it; does nothing where none listens. Never blocks.
void tell_launcher(LauncherNotice notice);

}  // namespace starling
