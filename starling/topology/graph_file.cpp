#include "starling/topology/graph_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"

namespace starling::topology {
namespace {

using Rows = std::vector<std::vector<double>>;

// Splits a line into its numbers; false if some word is not a number.
bool read_numbers(std::string line, std::vector<double>& numbers) {
  for (char& c : line)
    if (c == ',' || c == ';' || c == '\t' || c == '\r') c = ' ';
  std::istringstream words(line);
  std::string word;
  bool all = true;
  while (words >> word) {
    double value = 0;
    const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
    if (result.ec == std::errc() && result.ptr == word.data() + word.size()) {
      numbers.push_back(value);
    } else {
      all = false;
    }
  }
  return all;
}

Rows read_csv(std::istream& in, const std::string& path, int first_line) {
  Rows rows;
  std::string line;
  bool header = true;  // a header may still follow; a line with numbers is not a header but an invalid row
  for (int number = first_line; std::getline(in, line); ++number) {
    line = line.substr(0, line.find('#'));
    std::vector<double> row;
    if (!read_numbers(line, row)) {
      if (rows.empty() && row.empty() && std::exchange(header, false)) continue;
      throw InvalidArgument(fmt::format("{}:{}: not a row of numbers: {}", path, number, line));
    }
    if (row.empty()) continue;
    if (!rows.empty() && row.size() != rows[0].size())
      throw InvalidArgument(fmt::format("{}:{}: {} columns where the first row has {}", path, number,
                                        row.size(), rows[0].size()));
    rows.push_back(std::move(row));
  }
  return rows;
}

Rows read_json(const nlohmann::json& array, const std::string& path) {
  Rows rows;
  if (!array.is_array()) throw InvalidArgument(fmt::format("{}: expected an array of rows", path));
  for (const auto& item : array) {
    std::vector<double> row;
    if (item.is_array())
      for (const auto& value : item)
        if (value.is_number()) row.push_back(value.get<double>());
    if (row.empty() || row.size() != item.size())
      throw InvalidArgument(fmt::format("{}: row {} is not an array of numbers", path, rows.size()));
    if (!rows.empty() && row.size() != rows[0].size())
      throw InvalidArgument(fmt::format("{}: row {} has {} columns where row 0 has {}", path, rows.size(),
                                        row.size(), rows[0].size()));
    rows.push_back(std::move(row));
  }
  return rows;
}

Rank to_rank(double value, const std::string& path, std::size_t row) {
  if (value != std::floor(value) || std::abs(value) > 2e9)
    throw InvalidArgument(fmt::format("{}: row {}: {} is not a rank", path, row, value));
  return static_cast<Rank>(value);
}

bool looks_like_matrix(const Rows& rows, Rank n) {
  if (rows.size() != static_cast<std::size_t>(n) || rows[0].size() != rows.size()) return false;
  // Two or three columns may also be edges, but a matrix's rows sum to one.
  if (rows[0].size() > 3) return true;
  for (const auto& row : rows)
    for (std::size_t end = 0; end < std::min<std::size_t>(2, row.size()); ++end)
      if (row[end] != std::floor(row[end])) return true;  // not a node number
  for (const auto& row : rows) {
    double sum = 0;
    for (const double value : row) sum += value;
    if (std::abs(sum - 1) > 1e-6) return false;
  }
  return true;
}

}  // namespace

GraphFile read_graph_file(const std::string& path, GraphFormat format, Rank n) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path))
    throw InvalidArgument(fmt::format("cannot open the graph file {}", path));
  Rows rows;
  int line = 1;
  if (in.peek() == 0xEF) in.ignore(3);  // the byte order mark that some programs write at the start of UTF-8
  while (std::isspace(in.peek()) != 0)
    if (in.get() == '\n') ++line;
  if (in.peek() == '{' || in.peek() == '[') {
    nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) throw InvalidArgument(fmt::format("{}: not valid JSON", path));
    if (json.is_object() && json.contains("rounds")) {
      if (!json["rounds"].is_array() || json["rounds"].size() != 1)
        throw InvalidArgument(
            fmt::format("{}: a custom graph is static; the file must hold exactly one round", path));
      json = json["rounds"][0];
    }
    if (json.is_object() && json.contains("matrix")) {
      format = GraphFormat::matrix;
      json = json["matrix"];
    } else if (json.is_object() && json.contains("edges")) {
      format = GraphFormat::edges;
      json = json["edges"];
    }
    rows = read_json(json, path);
  } else {
    rows = read_csv(in, path, line);
  }
  if (rows.empty() && n > 1) throw InvalidArgument(fmt::format("{}: no rows of numbers", path));

  GraphFile file;
  if (format == GraphFormat::matrix ||
      (format == GraphFormat::automatic && !rows.empty() && looks_like_matrix(rows, n))) {
    file.weighted = true;
    if (rows.size() != static_cast<std::size_t>(n) || rows[0].size() != rows.size())
      throw InvalidArgument(fmt::format("{}: a matrix of {} rows and {} columns does not fit n = {}", path,
                                        rows.size(), rows.empty() ? 0 : rows[0].size(), n));
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < rows.size(); ++j)
        if (rows[i][j] != 0)
          file.entries.push_back({static_cast<Rank>(i), static_cast<Rank>(j), Lane::a, rows[i][j]});
    return file;
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() != 2 && rows[i].size() != 3)
      throw InvalidArgument(fmt::format(
          "{}: {} columns; an edge has 2 (from, to) or 3 (receiver, sender, weight), a matrix n = {}", path,
          rows[i].size(), n));
    file.weighted = rows[i].size() == 3;
    file.entries.push_back({to_rank(rows[i][0], path, i), to_rank(rows[i][1], path, i), Lane::a,
                            file.weighted ? rows[i][2] : 0});
  }
  return file;
}

}  // namespace starling::topology
