#include "starling/report/table.h"

#include <gtest/gtest.h>
#include <sstream>

#include "starling/base/error.h"
#include "starling/base/utf8.h"

namespace starling::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Table, AlignsWordsLeftAndNumbersRight) {
  Table table({"topology", "rho", "time"});
  table.row({"ring", "0.98", "12 µs"}).row({"one-peer", "-", "3.5 ms"});
  EXPECT_EQ(table.text(),
            "topology   rho    time\n"
            "────────  ────  ──────\n"
            "ring      0.98   12 µs\n"
            "one-peer     -  3.5 ms\n");
}

TEST(Table, UsesTheRequestedAlignment) {
  Table table({{"left", Align::left}, {"right", Align::right}});
  table.row({"1", "a"}).row({"22", "bbbbbbb"});
  EXPECT_EQ(table.text(),
            "left    right\n"
            "────  ───────\n"
            "1           a\n"
            "22    bbbbbbb\n");
}

TEST(Table, WidthsCountCodePoints) {
  Table table({"naïve", "x"});
  table.row({"日本", "y"}).row({"µµµµµµµ", "z"});
  for (const std::string& line : lines_of(table.text())) EXPECT_EQ(utf8_length(line), 10U) << line;
}

TEST(Table, TitleRulesAndFootnotes) {
  Table table({"a"});
  table.title("Title").row({"1"}).rule().rule().row({"2"}).footnote("note");
  EXPECT_EQ(table.text(), "Title\n\na\n─\n1\n─\n2\n\nnote\n");
}

TEST(Table, ColorOnlyWhenAsked) {
  Table table({"a"});
  table.row({"b"});
  EXPECT_EQ(table.text(false).find('\x1b'), std::string::npos);
  EXPECT_NE(table.text(true).find("\x1b[1ma\x1b[0m"), std::string::npos);
}

TEST(Table, CellsCannotMoveTheCursor) {
  Table table({"a"});
  table.row({"evil\x1b[2J\nname"});
  EXPECT_EQ(lines_of(table.text()).back(), "evil\uFFFD[2J name");
}

TEST(Table, RowsMustFit) {
  Table table({"a", "b"});
  EXPECT_THROW(table.row({"1"}), InvalidArgument);
  EXPECT_THROW(table.row({"1", "2", "3"}), InvalidArgument);
}

TEST(Table, WithoutHeadersThereIsNoHeaderLine) {
  Table table({{"", Align::left}, {"", Align::left}});
  table.row({"period", "4"});
  EXPECT_EQ(table.text(), "period  4\n");
}

TEST(Table, NoRows) {
  EXPECT_EQ(Table({"a", "bb"}).text(), "a  bb\n─  ──\n");
}

}  // namespace
}  // namespace starling::report
