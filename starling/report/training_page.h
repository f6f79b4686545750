#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "starling/record/run_log.h"
#include "starling/report/page.h"

namespace starling::report {

/// Training runs as a page: one run, several side by side, or a sweep, whose runs are grouped by everything
/// but the seed (run_groups.h). Loss and accuracy against steps, time and bytes; agreement; how time was
/// spent; who talked to whom; settings, versions and commands. An empty title is made from the runs. What
/// there is to conclude stands on top. Throws InvalidArgument without runs.
std::string training_page(const std::vector<RunLog>& runs, const std::string& title,
                          const Provenance& provenance, const std::vector<Verdict>& verdicts = {});

/// The same as a file, whole or not at all. Without a provenance it is the first run's.
///
///     write_training_page({read_run_log("run/metrics.jsonl")}, "", "run/report.html");
void write_training_page(const std::vector<RunLog>& runs, const std::string& title,
                         const std::filesystem::path& path, Provenance provenance = {},
                         const std::vector<Verdict>& verdicts = {});

}  // namespace starling::report

namespace starling {
using report::training_page;
using report::write_training_page;
}  // namespace starling
