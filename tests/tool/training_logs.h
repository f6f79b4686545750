#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

// What tests of commands that train look at: logs, and the workers of a running job.

namespace starling::tool {

/// The whole lines of a `metrics.jsonl`; none where there is no file.
std::vector<nlohmann::json> read_log(const std::string& path);
/// Those of one kind.
std::vector<nlohmann::json> of_kind(const std::vector<nlohmann::json>& lines, const std::string& kind);
/// The last report, without what is measured with a clock.
nlohmann::json last_result(const std::string& path);

/// The process of a rank that `starter` has started; -1 where there is none.
pid_t process_of_rank(pid_t starter, int rank);

}  // namespace starling::tool
