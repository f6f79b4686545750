#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/data/dataset.h"
#include "starling/data/fetch.h"

namespace starling::data {

/// A named data set: what the spec grammar needs, the function that loads it, and the sources of its files.
struct DataSource {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Dataset(const Parameters&, Split, const std::filesystem::path& folder)> load;
  std::optional<Recipe> recipe;  // empty for a generated data set, which has no files
  std::vector<std::string> aliases = {};
};

/// All data sets in the order of their documentation, then those that the program registered.
std::vector<DataSource> data_sources();

/// Registers a data set under a new name. Thread-safe.
void register_data(DataSource source);

/// The canonical spelling, equal for all specs of the same data set, with defaults filled in.
std::string canonical_data(std::string_view text);

/// The data set that `text` names, such as `mnist` or `synthetic(seed=3)`; throws InvalidArgument that lists
/// all.
const DataSource& find_data_source(std::string_view text);

/// The default folder of a data set's files: $STARLING_DATA/NAME, else
/// $XDG_CACHE_HOME/starling/NAME, else ~/.cache/starling/NAME.
std::filesystem::path data_folder(const std::string& name);

/// Loads a data set, as in `load("mnist", Split::train)`. The default folder is data_folder(name); a
/// generated data set takes none. Downloads nothing: missing files are an Error that says how to get them.
Dataset load(std::string_view text, Split split, const std::filesystem::path& folder = {});

/// Fetches the files of a data set that has files; the result is that of `fetch`.
FetchResult fetch(const DataSource& source, const std::filesystem::path& folder = {},
                  const std::function<void(const std::string&)>& tell = {});

}  // namespace starling::data

namespace starling {
using data::data_sources;
using data::DataSource;
using data::fetch;
using data::find_data_source;
using data::load;
}  // namespace starling
