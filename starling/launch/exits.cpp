#include "starling/launch/exits.h"

#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace starling::launch {

// Ranks open it by its path in /proc: a descriptor would not survive programs that close what they inherit.
ExitPage::ExitPage(Rank ranks) : file_(memfd_create("starling-exits", MFD_CLOEXEC)) {
  if (file_ && ftruncate(file_.get(), ranks) == 0)
    path_ = fmt::format("/proc/{}/fd/{}", getpid(), file_.get());
}

void ExitPage::mark(Rank rank) {
  const char mark = 1;
  if (!path_.empty()) static_cast<void>(!pwrite(file_.get(), &mark, 1, rank));
}

Exits::Exits() {
  const char* path = std::getenv(kExitsVariable);
  if (path != nullptr && *path != '\0') file_ = Fd(open(path, O_RDONLY | O_CLOEXEC));
}

bool Exits::has(Rank rank) const {
  char mark = 0;
  return file_ && pread(file_.get(), &mark, 1, rank) == 1 && mark != 0;
}

}  // namespace starling::launch
