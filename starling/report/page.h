#pragma once

#include <string>
#include <utility>
#include <vector>

#include "starling/report/chart.h"
#include "starling/report/table.h"

namespace starling::report {

/// Where a page comes from, for its footer: whoever reads it can make it again.
struct Provenance {
  std::string command;  // the exact command line
  std::string version;
  std::string date;
};

struct Fact {
  std::string name;
  std::string value;
};

/// What a page concludes: a claim in a few words, and the figures that it rests on.
struct Verdict {
  std::string claim;
  std::string evidence;
  bool bad = false;  // not what one would hope for
};

/// SVG made by this library (`topology_svg`): it goes into the page as it is.
struct Picture {
  std::string svg;
  std::string caption = {};
};

/// A self-contained HTML page, read from top to bottom: one file, no network, light and dark, phone and desk.
///
///     Page page("Consensus", "16 ranks");
///     page.section("Error").chart(chart).table(table);
///     file << page.html({"starling simulate ...", STARLING_VERSION, "2025-01-31"});
class Page {
 public:
  explicit Page(std::string title, std::string subtitle = "")
      : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  Page& section(const std::string& heading);
  Page& paragraph(const std::string& text);
  /// Key figures side by side.
  Page& facts(const std::vector<Fact>& facts);
  /// Numbered, one below the other.
  Page& verdicts(const std::vector<Verdict>& verdicts);
  Page& table(const Table& table);
  /// A table behind a line to click on.
  Page& folded(const std::string& summary, const Table& table);
  /// A command line, say: as it is, in a box.
  Page& code(const std::string& text);
  Page& chart(const LineChart& chart);
  Page& chart(const BarChart& chart);
  /// The same lines against different x, one at a time: buttons named by the x labels choose.
  Page& charts(const std::string& title, const std::vector<LineChart>& views);
  /// One picture at full width, several side by side where there is room.
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
