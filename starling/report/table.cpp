#include "starling/report/table.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/utf8.h"

namespace starling::report {
namespace {

constexpr std::string_view kColumnGap = "  ";

/// Numbers with or without a unit, and the usual symbols for "none".
bool looks_numeric(const std::string& cell) {
  if (cell.empty() || cell == "-" || cell == "–" || cell == "—" || cell == "nan" || cell == "inf" ||
      cell == "-inf")
    return true;
  const std::size_t start = cell.find_first_not_of("+-<>=~ .");
  return start != std::string::npos && std::isdigit(static_cast<unsigned char>(cell[start])) != 0;
}

/// Makes a cell one line that cannot move the cursor, whatever a file's name contains.
std::string printable(const std::string& text) {
  std::string clean;
  for (std::size_t position = 0; position < text.size();) {
    char32_t c = next_code_point(text, position);
    if (c == '\n' || c == '\t') c = ' ';
    append_utf8(clean, c < 0x20 || (c >= 0x7F && c < 0xA0) ? 0xFFFD : c);
  }
  return clean;
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::string space(width - std::min(width, utf8_length(text)), ' ');
  return align == Align::right ? space + text : text + space;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

Table& Table::title(std::string text) {
  title_ = std::move(text);
  return *this;
}

Table& Table::row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size())
    throw InvalidArgument(
        fmt::format("a row of {} cells in a table of {} columns", cells.size(), columns_.size()));
  rows_.push_back(std::move(cells));
  return *this;
}

Table& Table::rule() {
  if (!rows_.empty() && !has_rule_above(rows_.size())) rules_.push_back(rows_.size());
  return *this;
}

Table& Table::footnote(std::string text) {
  footnotes_.push_back(std::move(text));
  return *this;
}

bool Table::has_rule_above(std::size_t index) const {
  return std::find(rules_.begin(), rules_.end(), index) != rules_.end();
}

Align Table::align_of(std::size_t column) const {
  if (columns_[column].align != Align::automatic) return columns_[column].align;
  const auto numeric = [&](const auto& row) { return looks_numeric(row[column]); };
  const auto filled = [&](const auto& row) { return !row[column].empty(); };
  const bool right =
      std::any_of(rows_.begin(), rows_.end(), filled) && std::all_of(rows_.begin(), rows_.end(), numeric);
  return right ? Align::right : Align::left;
}

std::string Table::text(bool color) const {
  const auto styled = [&](const char* code, const std::string& line) {
    return color ? fmt::format("\x1b[{}m{}\x1b[0m", code, line) : line;
  };
  std::vector<std::string> headers;
  std::vector<std::size_t> widths;
  std::vector<Align> aligns;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    headers.push_back(printable(columns_[c].header));
    aligns.push_back(align_of(c));
    widths.push_back(utf8_length(headers.back()));
    for (const auto& row : rows_) widths.back() = std::max(widths.back(), utf8_length(printable(row[c])));
  }
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line += kColumnGap;
      line += padded(printable(cells[c]), widths[c], aligns[c]);
    }
    return without_trailing_spaces(std::move(line));
  };
  std::string rule;
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (c > 0) rule += kColumnGap;
    for (std::size_t i = 0; i < widths[c]; ++i) rule += "─";
  }

  std::string text;
  if (!title_.empty()) text += styled("1", printable(title_)) + "\n\n";
  const bool named =
      std::any_of(headers.begin(), headers.end(), [](const std::string& header) { return !header.empty(); });
  if (named) text += styled("1", line_of(headers)) + '\n' + styled("2", rule) + '\n';
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    if (has_rule_above(r)) text += styled("2", rule) + '\n';
    text += line_of(rows_[r]) + '\n';
  }
  if (!footnotes_.empty()) text += '\n';
  for (const std::string& note : footnotes_) text += styled("2", printable(note)) + '\n';
  return text;
}

}  // namespace starling::report
