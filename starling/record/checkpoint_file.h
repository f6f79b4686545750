#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "starling/base/dtype.h"

namespace starling {

/// A named piece of a rank's state. The bytes are the owner's.
struct StatePart {
  std::string name;
  std::string type;  // of the elements, for people and for checks: name(DType), or a word of the owner's
  std::span<const std::byte> bytes;
};

/// Where a piece of state goes when it is read back. The memory is the owner's.
struct StatePlace {
  std::string name;
  std::string type;
  std::span<std::byte> bytes;
};

template <typename T>
StatePart state_part(std::string part_name, std::span<const T> values) {
  return {std::move(part_name), name(dtype_of<T>), std::as_bytes(values)};
}

template <typename T>
StatePlace state_place(std::string part_name, std::span<T> values) {
  return {std::move(part_name), name(dtype_of<T>), std::as_writable_bytes(values)};
}

/// What is said about a checkpoint besides its parts: method, model and so on, in UTF-8, in the owner's
/// order.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// The first label of that name.
std::optional<std::string> find_label(const Labels& labels, std::string_view label);

struct CheckpointFileMark {
  std::uint64_t bytes = 0;     // of the whole file
  std::uint64_t checksum = 0;  // over everything, since it covers the checksums of the parts
};

/// Writes all parts into a file that appears whole, synced, or not at all, straight from the owner's memory.
/// The mark names the temporary file beside it, see AtomicFile. Throws Error with the system's reason;
/// InvalidArgument when two parts have one name.
CheckpointFileMark write_checkpoint_file(const std::filesystem::path& path, const Labels& labels,
                                         std::span<const StatePart> parts, const std::string& mark = {});

/// A checkpoint file, open. Everything it gives has been checked: what is truncated, foreign, of a newer
/// version or damaged is refused with an Error that names the file and says which.
class CheckpointFile {
 public:
  struct Part {
    std::string name;
    std::string type;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
    std::uint64_t checksum = 0;
  };

  /// Reads and checks everything but the parts' bytes.
  explicit CheckpointFile(std::filesystem::path path);
  ~CheckpointFile();
  CheckpointFile(CheckpointFile&& other) noexcept;
  CheckpointFile& operator=(CheckpointFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const Labels& labels() const { return labels_; }
  /// The label's text; throws Error when there is none.
  std::string label(std::string_view label) const;
  const std::vector<Part>& parts() const { return parts_; }
  bool has(std::string_view part) const { return find(part) != nullptr; }
  CheckpointFileMark mark() const { return mark_; }

  std::vector<std::byte> read(std::string_view part) const;
  /// Throws Error when there is no such part or its size is another; after an Error the bytes are garbage.
  void read_into(std::string_view part, std::span<std::byte> bytes) const;
  /// Also compares types, and all names, types and sizes before the first byte is written.
  void read_into(std::span<const StatePlace> places) const;
  /// Only compares them.
  void check(std::span<const StatePlace> places) const;
  /// Reads all parts and throws Error for the first that is damaged.
  void verify() const;

 private:
  const Part* find(std::string_view part) const;
  const Part& demand(std::string_view part) const;
  void demand_size(const Part& part, std::uint64_t bytes) const;
  void read_header();
  /// `bytes` is empty to check only.
  void read_checked(const Part& part, std::span<std::byte> bytes) const;
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path path_;
  int file_ = -1;
  Labels labels_;
  std::vector<Part> parts_;
  CheckpointFileMark mark_;
};

}  // namespace starling
