#include "tool/torch/needed_data.h"

#include <fmt/format.h>
#include <iostream>

#include "starling/base/spec.h"
#include "starling/data/registry.h"

namespace starling::tool {

void fetch_needed_data(const std::string& data) {
  if (data.starts_with("text:")) return;
  const Spec spec = parse_spec(data);
  for (const DataSource& source : data_sources())
    if (source.name == spec.word && source.recipe)
      fetch(source, {}, [&](const std::string& line) {
        std::cout << fmt::format("fetching {}: {}", source.name, line) << std::endl;
      });
}

}  // namespace starling::tool
