#include "starling/report/page.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <sstream>

#include "starling/base/json.h"
#include "starling/report/markup.h"
#include "starling/report/page_parts.h"
#include "starling/report/palette.h"

namespace starling::report {
namespace {

/// The browser must not load anything from elsewhere.
constexpr std::string_view kPolicy =
    "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;; script-src &#39;unsafe-inline&#39;; "
    "img-src data:";

std::string palette_script() {
  std::ostringstream text;
  JsonWriter json(text, JsonWriter::Layout::one_line);
  json.begin_array();
  for (const PaletteColor& color : kPalette)
    json.begin_object().member("light", color.light).member("dark", color.dark).end_object();
  json.end_array();
  return "const palette = " + text.str() + ";\n";
}

// Several panels in a row: a phone scrolls them instead of shrinking them.
bool is_wide(const std::string& svg) {
  constexpr double kWide = 560;  // pixels
  const std::string attribute = " width=\"";
  const std::size_t at = svg.find(attribute);
  return at != std::string::npos && std::strtod(svg.c_str() + at + attribute.size(), nullptr) > kWide;
}

template <typename Chart>
std::string data_of(const Chart& chart) {
  std::ostringstream data;
  JsonWriter json(data, JsonWriter::Layout::lines, /*digits=*/10);
  write_chart(json, chart);
  return data.str();
}

}  // namespace

Page& Page::section(const std::string& heading) {
  if (sections_++ > 0) body_ += "</section>\n";
  body_ += fmt::format("<section>\n<h2>{}</h2>\n", escape_markup(heading));
  return *this;
}

Page& Page::paragraph(const std::string& text) {
  body_ += fmt::format("<p>{}</p>\n", escape_markup(text));
  return *this;
}

Page& Page::facts(const std::vector<Fact>& facts) {
  body_ += "<dl class=\"card facts\">\n";
  for (const Fact& fact : facts)
    body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_markup(fact.name),
                         escape_markup(fact.value));
  body_ += "</dl>\n";
  return *this;
}

Page& Page::verdicts(const std::vector<Verdict>& verdicts) {
  body_ += "<ol class=\"card verdicts\">\n";
  for (const Verdict& verdict : verdicts)
    body_ += fmt::format("<li{}><b>{}</b><span>{}</span></li>\n", verdict.bad ? " class=\"bad\"" : "",
                         escape_markup(verdict.claim), escape_markup(verdict.evidence));
  body_ += "</ol>\n";
  return *this;
}

Page& Page::table(const Table& table) {
  const auto cell = [&](const char* tag, std::size_t column, const std::string& text) {
    const char* side = table.align_of(column) == Align::right ? " class=\"right\"" : "";
    return fmt::format("<{0}{1}>{2}</{0}>", tag, side, escape_markup(text));
  };
  constexpr std::size_t kMany = 8;  // columns
  body_ += table.columns().size() > kMany ? "<div class=\"card\"><div class=\"table dense\"><table>\n"
                                          : "<div class=\"card\"><div class=\"table\"><table>\n";
  if (!table.title().empty()) body_ += fmt::format("<caption>{}</caption>\n", escape_markup(table.title()));
  const auto named = [](const Column& column) { return !column.header.empty(); };
  if (std::any_of(table.columns().begin(), table.columns().end(), named)) {
    body_ += "<thead><tr>";
    for (std::size_t c = 0; c < table.columns().size(); ++c)
      body_ += cell("th", c, table.columns()[c].header);
    body_ += "</tr></thead>\n";
  }
  body_ += "<tbody>\n";
  for (std::size_t r = 0; r < table.rows().size(); ++r) {
    body_ += table.has_rule_above(r) ? "<tr class=\"ruled\">" : "<tr>";
    for (std::size_t c = 0; c < table.columns().size(); ++c) body_ += cell("td", c, table.rows()[r][c]);
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
  for (const std::string& note : table.footnotes())
    body_ += fmt::format("<p class=\"notes\">{}</p>\n", escape_markup(note));
  body_ += "</div>\n";
  return *this;
}

Page& Page::folded(const std::string& summary, const Table& content) {
  body_ += fmt::format("<details class=\"fold\"><summary>{}</summary>\n", escape_markup(summary));
  table(content);
  body_ += "</details>\n";
  return *this;
}

Page& Page::code(const std::string& text) {
  body_ += fmt::format("<pre class=\"card code\"><code>{}</code></pre>\n", escape_markup(text));
  return *this;
}

// One data script per view; a `height` of 0 means the style sheet's.
void Page::figure(const std::string& title, const std::string& note, const std::vector<std::string>& data,
                  double height) {
  body_ += fmt::format(
      "<figure class=\"card chart\" id=\"chart-{}\">\n<div class=\"chart-head\"><h3>{}</h3>"
      "<button type=\"button\" class=\"save\" title=\"the points as a CSV file\">CSV</button></div>\n",
      ++charts_, escape_markup(title));
  if (data.size() > 1) body_ += "<div class=\"views\" role=\"group\" aria-label=\"against\"></div>\n";
  body_ +=
      fmt::format("<div class=\"canvas\"{}><canvas role=\"img\" aria-label=\"{}\"></canvas></div>\n",
                  height > 0 ? fmt::format(" style=\"height:{:.0f}px\"", height) : "", escape_markup(title));
  body_ += "<ul class=\"legend\"></ul>\n";
  if (!note.empty()) body_ += fmt::format("<figcaption>{}</figcaption>\n", escape_markup(note));
  body_ +=
      "<noscript><p class=\"missing\">This chart is drawn by a script inside this file; please allow scripts "
      "to see "
      "it.</p></noscript>\n";
  for (const std::string& view : data)
    body_ +=
        "<script type=\"application/json\" class=\"chart-data\">" + escape_script_json(view) + "</script>\n";
  body_ += "</figure>\n";
}

Page& Page::chart(const LineChart& chart) {
  figure(chart.title, chart.note, {data_of(chart)}, 0);
  return *this;
}

Page& Page::chart(const BarChart& chart) {
  constexpr double kAround = 70, kRow = 46;  // pixels: the axis below, and a bar with its room
  figure(chart.title, chart.note, {data_of(chart)}, kAround + kRow * static_cast<double>(chart.rows.size()));
  return *this;
}

Page& Page::charts(const std::string& title, const std::vector<LineChart>& views) {
  std::vector<std::string> data;
  for (const LineChart& view : views) data.push_back(data_of(view));
  figure(title, views.empty() ? "" : views.front().note, data, 0);
  return *this;
}

Page& Page::pictures(const std::vector<Picture>& pictures) {
  body_ += pictures.size() == 1 ? "<div class=\"pictures single\">\n" : "<div class=\"pictures\">\n";
  for (const Picture& picture : pictures) {
    body_ +=
        fmt::format("<figure class=\"card picture{}\">\n", is_wide(picture.svg) ? " wide" : "") + picture.svg;
    if (!picture.caption.empty())
      body_ += fmt::format("<figcaption>{}</figcaption>\n", escape_markup(picture.caption));
    body_ += "</figure>\n";
  }
  body_ += "</div>\n";
  return *this;
}

std::string Page::html(const Provenance& provenance) const {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"Starling {}\">\n<link rel=\"icon\" "
      "href=\"data:,\">\n<title>{}</title>\n<style>",
      kPolicy, escape_markup(provenance.version), escape_markup(title_));
  html += page_style();
  html += fmt::format("</style>\n</head>\n<body>\n<header>\n<h1>{}</h1>\n", escape_markup(title_));
  if (!subtitle_.empty()) html += fmt::format("<p>{}</p>\n", escape_markup(subtitle_));
  html += "</header>\n<main>\n" + body_ + (sections_ > 0 ? "</section>\n" : "") + "</main>\n<footer>\n";
  if (!provenance.command.empty())
    html += fmt::format("Made by<code>{}</code>\n", escape_markup(provenance.command));
  html += fmt::format("Starling {} · {}\n</footer>\n", escape_markup(provenance.version),
                      escape_markup(provenance.date));
  if (charts_ > 0) {
    html += "<script>" + escape_script(embedded::chart_js()) + "</script>\n";
    html += "<script>\n" + escape_script(palette_script()) + escape_script(page_script()) + "</script>\n";
  }
  return html + "</body>\n</html>\n";
}

}  // namespace starling::report
