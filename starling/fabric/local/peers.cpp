#include "starling/fabric/local/peers.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "starling/base/error.h"

namespace starling::local {

Peers::Peers(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    if (pid == 0) {
      descriptors_.push_back(-1);
      continue;
    }
    const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (descriptor < 0 && errno != ESRCH)
      throw Error(fmt::format("cannot watch process {}: {}", pid, std::strerror(errno)));
    descriptors_.push_back(descriptor >= 0 ? descriptor : kGone);
  }
}

Peers::~Peers() {
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) close(descriptor);
}

bool Peers::dead(Rank rank) const {
  const int descriptor = descriptors_[static_cast<std::size_t>(rank)];
  if (descriptor < 0) return descriptor == kGone;
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace starling::local
