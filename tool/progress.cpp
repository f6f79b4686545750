#include "tool/progress.h"

#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>

namespace starling::tool {

namespace {

// Shortens the text to the terminal's width, because a wrapped line could not be overwritten.
std::string fitting(const std::string& text) {
  winsize window{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return text;
  std::size_t end = 0;
  for (std::size_t width = 0; end < text.size(); ++end) {
    // the first byte of a UTF-8 character
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (begins && ++width >= window.ws_col) break;
  }
  return text.substr(0, end);
}

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", fitting(text).c_str());
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
