#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "starling/base/floors.h"

namespace starling {

/// A file that appears completely or not at all: it is written under a temporary name, synced, and renamed. A
/// file that was not committed is removed. All functions throw Error with the system's reason.
class AtomicFile {
 public:
  /// Writes to `path` + ".part-" + `mark`, overwriting it; without a mark, to a unique name.
  explicit AtomicFile(std::filesystem::path path, const std::string& mark = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// The descriptor, for writing directly.
  int descriptor() const { return file_; }
  void write(std::span<const std::uint8_t> bytes);
  /// Syncs the data to disk. place() and commit() do this, too.
  void sync();
  /// Renames the file to its final name if no such file exists. Otherwise, or if the file system does not
  /// support this, returns false and changes nothing.
  bool place_if_free();
  /// Renames the file to its final name, once. A power failure may undo this until the folder is synced.
  void place();
  /// Renames the file to its final name and syncs the folder.
  void commit();
  /// Throws "cannot write <path>: " with the reason from errno.
  [[noreturn]] void fail() const;

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_ = -1;
  bool synced_ = false;
};

/// Replaces the file at `path` in one step: it is written beside `path`, synced and renamed, so `path` always
/// holds the old content or the new, never a part. Throws Error with the system's reason and then leaves
/// nothing behind.
void write_atomically(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

/// Syncs the folder: when this returns, files created, renamed or removed in it are so on disk. Throws Error.
void sync_folder(const std::filesystem::path& folder);

}  // namespace starling
