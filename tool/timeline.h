#pragma once

#include <string>

#include "starling/record/timeline_reader.h"

namespace starling::tool {

/// What lies there, with a line on standard error about everything that does not.
TimelineRun read_timeline_aloud(const std::string& file);

/// `starling timeline merge`: the parts of `file` become one trace.
void merge_timeline(const std::string& file, const std::string& out);

}  // namespace starling::tool
