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

/// A named data set: what the grammar knows, how to load it, and where to get its files.
struct DataSource {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Dataset(const Parameters&, Split, const std::filesystem::path& folder)> load;
  std::optional<Recipe> recipe;  // none: generated, there are no files
  std::vector<std::string> aliases = {};
};

/// All data sets, in the order of their documentation; a program's own come last.
std::vector<DataSource> data_sources();

/// Adds a data set of the program's own under a new name. Thread-safe.
void register_data(DataSource source);

/// The one spelling of all specs of data sets that mean the same, defaults filled in.
std::string canonical_data(std::string_view text);

/// The one that `text` names, such as `mnist` or `synthetic(seed=3)`; throws InvalidArgument listing them.
const DataSource& find_data_source(std::string_view text);

/// The default folder of a data set's files: $STARLING_DATA/NAME, else
/// $XDG_CACHE_HOME/starling/NAME, else ~/.cache/starling/NAME.
std::filesystem::path data_folder(const std::string& name);

/// `load("mnist", Split::train)`. Without a folder, data_folder(name); a generated data set takes none.
/// Nothing is fetched: files that are not there are an Error that says how to get them.
Dataset load(std::string_view text, Split split, const std::filesystem::path& folder = {});

/// Fetches the files of a data set that has some; FetchResult as of `fetch`.
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
