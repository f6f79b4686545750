#pragma once

// Tables, charts, drawings of topologies, self-contained HTML pages, and the log of a run with its page.

#include "starling/base/json.h"
#include "starling/record/run_log.h"
#include "starling/report/chart.h"
#include "starling/report/number_text.h"
#include "starling/report/page.h"
#include "starling/report/table.h"
#include "starling/report/topology_svg.h"
#include "starling/report/training_page.h"
