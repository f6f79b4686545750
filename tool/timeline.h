#pragma once

#include <string>

#include "starling/record/timeline_reader.h"

namespace starling::tool {

/// Reads the timelines of `file`, and reports missing or unreadable parts on standard error.
TimelineRun read_timeline_aloud(const std::string& file);

/// `starling timeline merge`: merges the parts of `file` into one trace.
void merge_timeline(const std::string& file, const std::string& out);

}  // namespace starling::tool
