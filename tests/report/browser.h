#pragma once

#include <string>
#include <vector>

namespace starling::report {

/// Returns the name of an installed Chromium to open pages with, or "".
std::string find_browser();

struct BrowserView {
  int width = 1200;
  bool dark = false;
};

/// How a page looked in headless Chromium.
struct BrowserFindings {
  bool opened = false;
  std::string console;  // warnings and errors; empty if there are none
  bool dark = false;
  int width = 0;          // of the window
  int content_width = 0;  // more than `width`: the page scrolls sideways
  /// For every chart and view: how many of the legend's colors the canvas contains.
  struct Drawing {
    std::string name;
    int expected = 0;
    int found = 0;
  };
  std::vector<Drawing> drawings;
  std::string raw;  // the browser's output, for messages of failing tests
};

BrowserFindings open_in_browser(const std::string& html, const BrowserView& view);

}  // namespace starling::report
