#include "starling/launch/exited_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "starling/base/environment.h"

namespace starling::launch {

// Ranks open it through /proc: an inherited descriptor would not survive programs that close all descriptors.
ExitedRanksPage::ExitedRanksPage(Rank ranks) : file_(memfd_create("starling-exits", MFD_CLOEXEC)) {
  if (file_ && ftruncate(file_.get(), ranks) == 0)
    path_ = fmt::format("/proc/{}/fd/{}", getpid(), file_.get());
}

void ExitedRanksPage::mark(Rank rank) {
  const char mark = 1;
  if (!path_.empty()) static_cast<void>(!pwrite(file_.get(), &mark, 1, rank));
}

ExitedRanks::ExitedRanks() {
  if (const std::string path = environment::kExits.text(); !path.empty())
    file_ = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

bool ExitedRanks::has(Rank rank) const {
  char mark = 0;
  return file_ && pread(file_.get(), &mark, 1, rank) == 1 && mark != 0;
}

}  // namespace starling::launch
