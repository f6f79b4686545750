#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

// Helpers that write data sets to disk and set environment variables for tests.

namespace starling::data {

using Bytes = std::vector<std::uint8_t>;

/// A temporary folder, removed when the test ends.
class DataFolder {
 public:
  DataFolder();
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const Bytes& bytes) const;
  std::filesystem::path write(const std::string& name, const std::string& text) const;
  /// Writes an executable shell script.
  std::filesystem::path program(const std::string& name, const std::string& script) const;
  /// Names of the folder's entries, sorted.
  std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

/// Sets an environment variable (std::nullopt unsets it) and restores it when the test ends.
class Variable {
 public:
  Variable(std::string name, const std::optional<std::string>& value);
  ~Variable();
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

Bytes file_bytes(const std::filesystem::path& path);
Bytes gzip(const Bytes& bytes);
/// An uncompressed tar archive.
Bytes tar(const std::map<std::string, Bytes>& members);
/// An IDX file of bytes; values count up from 0 and start again at `modulus`.
Bytes idx(const std::vector<std::uint32_t>& dimensions, int modulus = 256);

/// A PNG file, RGB, whose rows use all five filters in turn.
Bytes png(std::size_t width, std::size_t height, const Bytes& pixels);

/// Returns the message of what f() throws, or "" if it throws nothing.
template <typename F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace starling::data
