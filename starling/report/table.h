#pragma once

#include <string>
#include <utility>
#include <vector>

#include "starling/report/number_text.h"

namespace starling::report {

enum class Align { automatic, left, right };

/// A column of a Table; `automatic` aligns numbers to the right and words to the left.
struct Column {
  Column(std::string text) : header(std::move(text)) {}  // NOLINT: {"rank", "rho"} should be readable
  Column(const char* text, Align side = Align::automatic) : header(text), align(side) {}
  Column(std::string text, Align side) : header(std::move(text)), align(side) {}

  std::string header;
  Align align = Align::automatic;
};

/// A table for readers: on a terminal by `text()`, on a page by `Page::table`. Without any header text there
/// is no header line.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  Table& title(std::string text);
  /// Needs as many cells as columns; throws InvalidArgument otherwise.
  Table& row(std::vector<std::string> cells);
  /// A horizontal line between the rows before and after.
  Table& rule();
  Table& footnote(std::string text);

  /// `color` adds ANSI codes (bold header, dim lines); use it only for terminals.
  std::string text(bool color = false) const;

  const std::vector<Column>& columns() const { return columns_; }
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  const std::vector<std::string>& footnotes() const { return footnotes_; }
  const std::string& title() const { return title_; }
  /// Whether there is a rule above row `index`.
  bool has_rule_above(std::size_t index) const;
  /// The alignment of a column, with `automatic` resolved to left or right.
  Align align_of(std::size_t column) const;

 private:
  std::string title_;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> rules_;  // indices of the rows below
  std::vector<std::string> footnotes_;
};

}  // namespace starling::report

namespace starling {
using report::Table;
}  // namespace starling
