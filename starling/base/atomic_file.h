#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "starling/base/floors.h"

namespace starling {

/// A file that appears whole or not at all: it is written beside its place, synced, and renamed there. One
/// that was not committed is removed. Everything throws Error with the system's reason.
class AtomicFile {
 public:
  /// Writes to `path` + ".part-" + `mark`, which it overwrites; without a mark, to a unique name.
  explicit AtomicFile(std::filesystem::path path, const std::string& mark = {});
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// To write to directly.
  int descriptor() const { return file_; }
  void write(std::span<const std::uint8_t> bytes);
  /// All bytes are on the disk when this returns; place() and commit() do that, too.
  void sync();
  /// Puts the file in its place where there is none yet; false, and nothing is changed, where there is one or
  /// the file system cannot tell.
  bool place_if_free();
  /// Puts the file in its place, unless it is there already; it may be lost with the power until the folder
  /// is synced.
  void place();
  /// Puts the file in its place and syncs the folder.
  void commit();
  /// Throws "cannot write <path>: " and the reason in errno.
  [[noreturn]] void fail() const;

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int file_ = -1;
  bool synced_ = false;
};

/// Writes a whole file beside `path`, syncs it and renames it there: whatever happens in between, `path` is
/// the old file or the new one, never a part. Throws Error with the system's reason; nothing is left then.
void write_atomically(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

/// Syncs the folder: files created, renamed or removed in it are on disk when this returns. Throws Error.
void sync_folder(const std::filesystem::path& folder);

}  // namespace starling
