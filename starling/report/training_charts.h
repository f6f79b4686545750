#pragma once

#include <vector>

#include "starling/report/chart.h"
#include "starling/report/run_groups.h"

namespace starling::report {

/// The charts of a training page. The views of one chart differ by what they are drawn against: step,
/// seconds, bytes sent.
std::vector<LineChart> loss_charts(const std::vector<RunTask::Member>& entries);
std::vector<LineChart> accuracy_charts(const std::vector<RunTask::Member>& entries);

/// No series where all models were equal all the time.
std::vector<LineChart> distance_charts(const std::vector<RunTask::Member>& entries);

/// Seconds of computing, waiting and combining at the end.
BarChart time_chart(const std::vector<RunTask::Member>& entries);

}  // namespace starling::report
