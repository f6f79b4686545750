#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "starling/record/run_log.h"
#include "starling/report/page.h"

namespace starling::report {

/// Training runs as a page: one run, several side by side, or a sweep, whose runs are grouped by everything
/// but the seed (run_groups.h). Shows loss and accuracy against steps, time and bytes; consensus distance;
/// how time was spent; the topology; settings, versions and commands. Conclusions come first. An empty title
/// is replaced by one made from the runs. Throws InvalidArgument without runs.
std::string training_page(const std::vector<RunLog>& runs, const std::string& title,
                          const Provenance& provenance, const std::vector<Verdict>& verdicts = {});

/// Writes the page to a file atomically. The default provenance is the first run's.
///
///   write_training_page({read_run_log("run/metrics.jsonl")}, "", "run/report.html");
void write_training_page(const std::vector<RunLog>& runs, const std::string& title,
                         const std::filesystem::path& path, Provenance provenance = {},
                         const std::vector<Verdict>& verdicts = {});

}  // namespace starling::report

namespace starling {
using report::training_page;
using report::write_training_page;
}  // namespace starling
