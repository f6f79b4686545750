#include "starling/base/median.h"

#include <algorithm>

#include "starling/base/error.h"

namespace starling {

double median(std::vector<double> values) {
  if (values.empty()) throw Error("no values to take a median of");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace starling
