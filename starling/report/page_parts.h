#pragma once

#include <string_view>

#include "starling/base/floors.h"

// The fixed parts of a page: the style sheet and the script, as string literals.

namespace starling::report {

std::string_view page_style();

/// Draws every <script class="chart-data"> in the figure that contains it, with Chart.js.
std::string_view page_script();

}  // namespace starling::report

namespace starling::embedded {
/// Chart.js, made by embed_file in CMakeLists.txt.
std::string_view chart_js();
}  // namespace starling::embedded
