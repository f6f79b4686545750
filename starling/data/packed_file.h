#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

/// Reads a plain file, or the content of a gzip file; the first bytes tell which it is.
class PackedFile {
 public:
  /// Throws Error if the file cannot be opened.
  explicit PackedFile(const std::filesystem::path& path);

  /// Returns fewer bytes than requested only at the end. Throws Error with the file's name if it is damaged
  /// or truncated.
  std::size_t read(std::span<std::uint8_t> bytes);
  /// Appends up to `most` bytes; uses memory for the bytes that exist, not for `most`.
  std::size_t append(std::vector<std::uint8_t>& bytes, std::size_t most);

  const std::string& name() const { return name_; }

 private:
  struct Close {
    void operator()(void* file) const;
  };

  std::string name_;
  std::unique_ptr<void, Close> file_;
};

/// `path` itself, or `path` with the suffix .gz; empty if neither exists.
std::optional<std::filesystem::path> find_packed(const std::filesystem::path& path);

/// The whole content of a plain or gzip file.
std::vector<std::uint8_t> read_packed(const std::filesystem::path& path);

/// The SHA-256 of the unpacked content: equal for `file` and `file.gz`.
std::string packed_sha256(const std::filesystem::path& path);

/// A member of a tar archive in memory; empty if there is none with this name. Throws Error with `archive` if
/// the archive is truncated or not a tar file.
std::optional<std::span<const std::uint8_t>> tar_member(std::span<const std::uint8_t> tar,
                                                        const std::string& member,
                                                        const std::string& archive);

}  // namespace starling::data
