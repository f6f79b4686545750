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
#include "starling/base/types.h"
#include "starling/kernel/device_context.h"

namespace starling::record {

/// A named piece of a rank's state, to be written. Does not own the bytes.
struct StatePart {
  std::string name;
  std::string type;  // of the elements, for readers and for checks: name(DType), or the owner's own
  std::span<const std::byte> bytes;
  /// If the bytes are in device memory: the stream on which they are written.
  std::optional<kernel::DeviceContext> device = {};
};

/// The memory into which a piece of state is read back. Does not own it.
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

/// The metadata of a checkpoint: method, model and so on, in UTF-8, in the owner's order.
using Labels = std::vector<std::pair<std::string, std::string>>;

/// The first label of that name.
std::optional<std::string> find_label(const Labels& labels, std::string_view label);

/// Identifies the contents of a checkpoint file.
struct CheckpointFileMark {
  std::uint64_t bytes = 0;     // of the whole file
  std::uint64_t checksum = 0;  // of the whole file: covers the checksums of the parts
};

/// Writes all parts into a file atomically (complete and synced, or not at all), directly from the owner's
/// memory. `mark` is part of the name of the temporary file, see AtomicFile. Throws Error with the system's
/// reason, and InvalidArgument if two parts have the same name.
CheckpointFileMark write_checkpoint_file(const std::filesystem::path& path, const Labels& labels,
                                         std::span<const StatePart> parts, const std::string& mark = {});

/// The same for a file of one rank, which the label "rank" names. Throws InvalidArgument, and changes
/// nothing, if another rank's file is there: two ranks that save to one path would overwrite each other.
CheckpointFileMark write_own_checkpoint_file(const std::filesystem::path& path, Rank rank, Labels labels,
                                             std::span<const StatePart> parts);

/// An open checkpoint file. Everything that it returns has been verified: a truncated, foreign, newer or
/// damaged file is rejected with an Error that names the file and the reason.
class CheckpointFile {
 public:
  struct Part {
    std::string name;
    std::string type;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
    std::uint64_t checksum = 0;
  };

  /// Reads and verifies everything except the contents of the parts.
  explicit CheckpointFile(std::filesystem::path path);
  ~CheckpointFile();
  CheckpointFile(CheckpointFile&& other) noexcept;
  CheckpointFile& operator=(CheckpointFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const Labels& labels() const { return labels_; }
  /// The text of a label; throws Error if there is none.
  std::string label(std::string_view label) const;
  const std::vector<Part>& parts() const { return parts_; }
  bool has(std::string_view part) const { return find(part) != nullptr; }
  CheckpointFileMark mark() const { return mark_; }

  std::vector<std::byte> read(std::string_view part) const;
  /// Throws Error if there is no such part or its size differs; then the contents of `bytes` are undefined.
  void read_into(std::string_view part, std::span<std::byte> bytes) const;
  /// Checks all names, types and sizes before it writes the first byte.
  void read_into(std::span<const StatePlace> places) const;
  /// Only checks them.
  void check(std::span<const StatePlace> places) const;
  /// Reads all parts; throws Error for the first damaged one.
  void verify() const;

 private:
  const Part* find(std::string_view part) const;
  const Part& demand(std::string_view part) const;
  void demand_size(const Part& part, std::uint64_t bytes) const;
  void read_header();
  /// Only verifies the part if `bytes` is empty.
  void read_checked(const Part& part, std::span<std::byte> bytes) const;
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path path_;
  int file_ = -1;
  Labels labels_;
  std::vector<Part> parts_;
  CheckpointFileMark mark_;
};

}  // namespace starling::record

namespace starling {
using record::CheckpointFile;
using record::find_label;
using record::Labels;
using record::state_part;
using record::state_place;
using record::StatePart;
using record::StatePlace;
using record::write_checkpoint_file;
}  // namespace starling
