#pragma once

#include <vector>

#include "starling/report/chart.h"
#include "starling/report/run_groups.h"

namespace starling::report {

/// The charts of a training page. The views of one chart differ in their x axis: step, seconds or bytes sent.
std::vector<LineChart> loss_charts(const std::vector<RunTask::Member>& entries);
std::vector<LineChart> accuracy_charts(const std::vector<RunTask::Member>& entries);

/// Has no series if all models were always equal.
std::vector<LineChart> distance_charts(const std::vector<RunTask::Member>& entries);

/// Seconds of computing, waiting and combining, at the end of the runs.
BarChart time_chart(const std::vector<RunTask::Member>& entries);

}  // namespace starling::report
