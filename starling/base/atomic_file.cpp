#include "starling/base/atomic_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "starling/base/error.h"

namespace starling {
namespace {

bool write_all(int file, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// A rename is on the disk when its folder is.
bool sync_folder(const std::filesystem::path& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool synced = fsync(file) == 0 || errno == EINVAL;  // some file systems cannot, and need not
  close(file);
  return synced;
}

mode_t usual_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

void write_atomically(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  const auto fail = [&] {
    throw Error(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  };
  std::string temporary = path.string() + ".part-XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) fail();
  const bool synced = fchmod(file, usual_mode()) == 0 && write_all(file, bytes) && fsync(file) == 0;
  const int reason = errno;
  const bool closed = close(file) == 0;
  if (!synced) errno = reason;
  if (!synced || !closed || rename(temporary.c_str(), path.c_str()) != 0) {
    const int kept = errno;
    unlink(temporary.c_str());
    errno = kept;
    fail();
  }
  if (!sync_folder(path.has_parent_path() ? path.parent_path() : ".")) fail();
}

}  // namespace starling
