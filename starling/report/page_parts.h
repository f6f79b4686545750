#pragma once

#include <string_view>

// The fixed parts of a page; the sources of these functions are the style sheet and the script themselves.

namespace starling {

std::string_view page_style();

/// Draws every <script class="chart-data"> into the figure that holds it, with Chart.js.
std::string_view page_script();

namespace embedded {
/// Chart.js, made by embed_file in CMakeLists.txt.
std::string_view chart_js();
}  // namespace embedded

}  // namespace starling
