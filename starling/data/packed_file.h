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

/// Reads a file as it is, or what a gzip file holds; which of the two, its first bytes tell.
class PackedFile {
 public:
  /// Throws Error when it cannot be opened.
  explicit PackedFile(const std::filesystem::path& path);

  /// Fewer bytes than asked for only at the end; throws Error naming the file where it is damaged or cut off.
  std::size_t read(std::span<std::uint8_t> bytes);
  /// Appends up to `most` bytes; memory grows with what is there, not with what is asked for.
  std::size_t append(std::vector<std::uint8_t>& bytes, std::size_t most);

  const std::string& name() const { return name_; }

 private:
  struct Close {
    void operator()(void* file) const;
  };

  std::string name_;
  std::unique_ptr<void, Close> file_;
};

/// `path` itself, or with .gz behind it; nothing where neither is there.
std::optional<std::filesystem::path> find_packed(const std::filesystem::path& path);

/// The whole content of a plain or gzip file.
std::vector<std::uint8_t> read_packed(const std::filesystem::path& path);

/// Its SHA-256, unpacked: the same for `file` and `file.gz`.
std::string packed_sha256(const std::filesystem::path& path);

/// A member of a tar archive in memory; nothing where it has none of that name. Throws Error naming
/// `archive` where it is cut off or no tar at all.
std::optional<std::span<const std::uint8_t>> tar_member(std::span<const std::uint8_t> tar,
                                                        const std::string& member,
                                                        const std::string& archive);

}  // namespace starling::data
