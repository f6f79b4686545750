#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace starling::report {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // text directly inside; entities are not replaced
};

/// A small strict reader of XML, enough to see that every tag closes, every attribute is quoted and no bare
/// '&' or
/// '<' is left. `problem` is empty when all is well.
struct CheckedMarkup {
  std::string problem;
  std::vector<Element> elements;

  std::size_t count(std::string_view name) const;
  /// The number of elements of this class.
  std::size_t count_class(std::string_view class_name) const;
  /// The texts of all elements of this class.
  std::vector<std::string> texts(std::string_view class_name) const;
};

CheckedMarkup check_markup(std::string_view xml);

}  // namespace starling::report
