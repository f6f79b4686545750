#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// A parsed spec, in the grammar that topologies, methods and codecs share:
///
///   spec     = word | word "(" [argument {"," argument}] ")" | "[" [spec {"," spec}] "]"
///   argument = [key "="] spec
///
/// A word is a name, a number or a path; any other text goes between double quotes. Examples: `ring`,
/// `base(k=2)`, `periodic(ring, h=16)`, `live(ring, members=[0,2,5..9])`, `custom(file="my graph.csv")`.
struct Spec {
  struct Argument;

  std::string word;
  bool is_list = false;
  std::vector<Argument> arguments;  // of `word(...)`, or the items of a list

  /// The canonical text, which parses back to an equal Spec.
  std::string to_string() const;

  friend bool operator==(const Spec& left, const Spec& right);
};

struct Spec::Argument {
  std::string key;  // empty for a positional argument
  Spec value;

  friend bool operator==(const Argument& left, const Argument& right);
};

/// Throws InvalidArgument with the position of the first mistake.
Spec parse_spec(std::string_view text);

}  // namespace starling
