#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

// Helpers for tests of training commands: logs, and the workers of a running job.

namespace starling::tool {

/// The complete lines of a `metrics.jsonl`; empty if there is no file.
std::vector<nlohmann::json> read_log(const std::string& path);
/// The lines of one kind.
std::vector<nlohmann::json> of_kind(const std::vector<nlohmann::json>& lines, const std::string& kind);
/// The last report, without times.
nlohmann::json last_result(const std::string& path);

/// The process of a rank started by `starter`; -1 if there is none.
pid_t process_of_rank(pid_t starter, int rank);

}  // namespace starling::tool
