#include "starling/base/launcher_notice.h"

#include <cstdio>
#include <sys/socket.h>
#include <sys/stat.h>

namespace starling {
namespace {

// The launcher's socket, or -1. Programs in between may have closed it and reused its number, so the device
// and inode are compared.
int launcher_socket() {
  const char* text = environment::kLauncher.value();
  if (text == nullptr) return -1;
  int number = -1;
  unsigned long long device = 0;
  unsigned long long inode = 0;
  if (std::sscanf(text, "%d:%llu:%llu", &number, &device, &inode) != 3) return -1;
  struct stat file {};
  const bool same = number >= 0 && fstat(number, &file) == 0 && S_ISSOCK(file.st_mode) &&
                    file.st_dev == device && file.st_ino == inode;
  return same ? number : -1;
}

}  // namespace

bool has_launcher() {
  return launcher_socket() >= 0;
}

void tell_launcher(LauncherNotice notice) {
  const char word = static_cast<char>(notice);
  if (const int socket = launcher_socket(); socket >= 0) send(socket, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace starling
