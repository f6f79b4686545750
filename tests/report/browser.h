#pragma once

#include <string>
#include <vector>

namespace starling::report {

/// Whether there is a Chromium to open pages in; the program's name, or "".
std::string find_browser();

struct BrowserView {
  int width = 1200;
  bool dark = false;
};

/// What a page looked like in headless Chromium.
struct BrowserFindings {
  bool opened = false;
  std::string console;  // warnings and errors, nothing where all is well
  bool dark = false;
  int width = 0;          // of the window
  int content_width = 0;  // more than `width`: the page scrolls sideways
  /// For every chart, in every view of it: how many of the legend's colors are in the canvas.
  struct Drawing {
    std::string name;
    int expected = 0;
    int found = 0;
  };
  std::vector<Drawing> drawings;
  std::string raw;  // what the browser said, for messages of failing tests
};

BrowserFindings open_in_browser(const std::string& html, const BrowserView& view);

}  // namespace starling::report
