#include "tool/progress.h"

#include <cstdio>
#include <unistd.h>

namespace starling::tool {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace starling::tool
