#include <cmath>
#include <fmt/format.h>
#include <fstream>

#include <nlohmann/json.hpp>

#include "starling/base/error.h"
#include "starling/simulate/objective/quadratic.h"
#include "starling/simulate/objective_registry.h"

namespace starling::simulate {
namespace {

using nlohmann::json;

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path.string()) {}

  json document() const {
    std::ifstream in(file_);
    if (!in) refuse("cannot be read");
    json read;
    try {
      read = json::parse(in);
    } catch (const json::parse_error& error) {
      refuse(fmt::format("is not JSON: {}", error.what()));
    }
    if (!read.is_object()) refuse(R"(must hold {"a": [[...]], "b": [[...]], "x0": [...]})");
    for (const auto& [key, value] : read.items())
      if (key != "a" && key != "b" && key != "x0")
        refuse(fmt::format("\"{}\" is not known; valid are a, b and x0", key));
    return read;
  }

  // Appends a list of numbers to `to`; returns how many.
  std::size_t numbers(const json& list, const std::string& what, std::vector<double>& to) const {
    if (!list.is_array() || list.empty()) refuse(what + " must be a list of numbers");
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (!list[k].is_number() || !std::isfinite(list[k].get<double>()))
        refuse(fmt::format("{}, coordinate {}: {} is not a number", what, k, list[k].dump()));
      to.push_back(list[k].get<double>());
    }
    return list.size();
  }

  // Appends a list of rows of equal length; returns how many. The first row sets `columns`.
  std::size_t rows(const json& document, const char* key, std::size_t& columns,
                   std::vector<double>& to) const {
    if (!document.contains(key) || !document[key].is_array() || document[key].empty())
      refuse(fmt::format("\"{}\" must be a list of rows, one per node", key));
    const json& all = document[key];
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string what = fmt::format("\"{}\", row {} (node {})", key, i, i);
      const std::size_t length = numbers(all[i], what, to);
      if (columns == 0) columns = length;
      if (length != columns)
        refuse(fmt::format("{} has {} numbers; valid is {}, as in row 0 of \"a\"", what, length, columns));
    }
    return all.size();
  }

  [[noreturn]] void refuse(const std::string& why) const { throw Error(fmt::format("{}: {}", file_, why)); }

 private:
  std::string file_;
};

}  // namespace

ObjectivePtr read_quadratic(const std::filesystem::path& path) {
  const Reader reader(path);
  const json document = reader.document();
  Quadratic::Data data;
  std::size_t columns = 0;
  const std::size_t nodes = reader.rows(document, "a", columns, data.a);
  const std::size_t others = reader.rows(document, "b", columns, data.b);
  if (others != nodes)
    reader.refuse(fmt::format("\"a\" has {} rows and \"b\" has {}; both have one per node", nodes, others));
  if (nodes > static_cast<std::size_t>(INT32_MAX)) reader.refuse("has too many rows");
  if (!document.contains("x0")) {
    data.start.assign(columns, 0.0);
  } else if (const std::size_t length = reader.numbers(document["x0"], "\"x0\"", data.start);
             length != columns) {
    reader.refuse(fmt::format("\"x0\" has {} numbers; valid is {}, as in row 0 of \"a\"", length, columns));
  }
  return std::make_shared<Quadratic>(static_cast<Rank>(nodes), std::move(data));
}

}  // namespace starling::simulate
