#pragma once

#include <string>

namespace starling::tool {

/// Fetches what `data` of an experiment names, unless it is there or is no data set of files. Throws Error
/// that says where files can be put by hand.
void fetch_needed_data(const std::string& data);

}  // namespace starling::tool
