#pragma once

#include <string>

namespace starling::tool {

/// Fetches the data set named in `data`, unless its files exist or it has none. Throws Error that says where
/// the user can put the files.
void fetch_needed_data(const std::string& data);

}  // namespace starling::tool
