#include "starling/fabric/local/peer_processes.h"

#include <poll.h>
#include <sys/syscall.h>

namespace starling::fabric::local {

Descriptor PeerProcesses::open_own() {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
}

bool PeerProcesses::dead(Rank rank) const {
  const Descriptor& process = processes_[static_cast<std::size_t>(rank)];
  if (!process) return false;
  pollfd entry{process.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace starling::fabric::local
