#pragma once

#include <string>
#include <utility>
#include <vector>

#include "starling/report/chart.h"
#include "starling/report/table.h"

namespace starling::report {

/// The origin of a page, for its footer, so that readers can create it again.
struct Provenance {
  std::string command;  // the exact command line
  std::string version;
  std::string date;
};

struct Fact {
  std::string name;
  std::string value;
};

/// A conclusion of a page: a claim in a few words, and the figures that support it.
struct Verdict {
  std::string claim;
  std::string evidence;
  bool bad = false;  // not the desired result
};

/// An SVG made by this library (`topology_svg`), which the page contains unchanged.
struct Picture {
  std::string svg;
  std::string caption = {};
};

/// A self-contained HTML page, read from top to bottom: one file that needs no network, for light and dark
/// screens, phones and desktops.
///
///   Page page("Consensus", "16 ranks");
///   page.section("Error").chart(chart).table(table);
///   file << page.html({"starling simulate ...", STARLING_VERSION, "2025-01-31"});
class Page {
 public:
  explicit Page(std::string title, std::string subtitle = "")
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  Page& section(const std::string& heading);
  Page& paragraph(const std::string& text);
  /// Key figures side by side.
  Page& facts(const std::vector<Fact>& facts);
  /// A numbered list of conclusions.
  Page& verdicts(const std::vector<Verdict>& verdicts);
  Page& table(const Table& table);
  /// A table that opens when its summary line is clicked.
  Page& folded(const std::string& summary, const Table& table);
  /// Text such as a command line, unchanged, in a box.
  Page& code(const std::string& text);
  Page& chart(const LineChart& chart);
  Page& chart(const BarChart& chart);
  /// The same lines against different x axes, one at a time; buttons named by the x labels choose.
  Page& charts(const std::string& title, const std::vector<LineChart>& views);
  /// One picture at full width, or several side by side if there is room.
  Page& pictures(const std::vector<Picture>& pictures);

  std::string html(const Provenance& provenance) const;

 private:
  void figure(const std::string& title, const std::string& note, const std::vector<std::string>& data,
              double height);

  std::string title_;
  std::string subtitle_;
  std::string body_;
  int sections_ = 0;
  int charts_ = 0;
};

}  // namespace starling::report

namespace starling {
using report::Page;
}  // namespace starling
