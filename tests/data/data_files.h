#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

// What tests of data sets put on the disk and into the environment.

namespace starling::data {

using Bytes = std::vector<std::uint8_t>;

/// A folder of the test's own, gone when it ends.
class DataFolder {
 public:
  DataFolder();
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const Bytes& bytes) const;
  std::filesystem::path write(const std::string& name, const std::string& text) const;
  /// A shell script that can be executed.
  std::filesystem::path program(const std::string& name, const std::string& script) const;
  /// What lies in it, sorted.
  std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

/// An environment variable that is what it was when the test ends; nothing unsets it.
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

/// A PNG file, RGB, whose rows use all five filters by turns.
Bytes png(std::size_t width, std::size_t height, const Bytes& pixels);

/// What f() throws, as text; "" when it throws nothing.
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
