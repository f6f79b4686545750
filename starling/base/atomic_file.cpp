#include "starling/base/atomic_file.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>
#include <utility>

#include "starling/base/error.h"

namespace starling {
namespace {

[[noreturn]] void fail_to_write(const std::filesystem::path& path) {
  throw Error(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
}

constexpr mode_t kMode = 0666;  // minus the bits of the umask

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, const std::string& mark) : path_(std::move(path)) {
  static std::atomic<unsigned> count{0};
  do {
    temporary_ = path_;
    temporary_ += mark.empty() ? fmt::format(".part-{}-{}", getpid(), count++) : ".part-" + mark;
    file_ =
        open(temporary_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (mark.empty() ? O_EXCL : O_TRUNC), kMode);
  } while (file_ < 0 && errno == EEXIST);  // a process with our process id left this file behind
  if (file_ < 0) fail();
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::sync() {
  if (!synced_ && fsync(file_) != 0) fail();
  synced_ = true;
}

bool AtomicFile::place_if_free() {
  sync();
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) return false;
  close(std::exchange(file_, -1));
  temporary_.clear();
  return true;
}

void AtomicFile::place() {
  if (temporary_.empty()) return;
  sync();
  if (close(std::exchange(file_, -1)) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  temporary_.clear();
}

void AtomicFile::commit() {
  place();
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

void AtomicFile::fail() const {
  fail_to_write(path_);
}

void write_atomically(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void sync_folder(const std::filesystem::path& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail_to_write(folder);
  const bool synced = fsync(file) == 0 || errno == EINVAL;  // some file systems do not support fsync
  close(file);
  if (!synced) fail_to_write(folder);
}

}  // namespace starling
