#include "starling/flock/weighted_sum.h"

#include <cstring>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"

namespace starling::flock {

void check_weight(DType dtype, double weight) {
  if (!is_floating(dtype) && weight != 0 && weight != 1)
    throw InvalidArgument(
        fmt::format("a window of {} has no weights but 0 and 1, not {}", name(dtype), weight));
}

void weighted_sum(DType dtype, std::byte* out, std::span<const Term> terms, std::size_t count) {
  if (is_floating(dtype)) {
    combine(dtype, out, terms, count);
    return;
  }
  for (const Term& term : terms) check_weight(dtype, term.weight);
  bool empty = true;
  for (const Term& term : terms) {
    if (term.weight == 0) continue;
    if (!empty) {
      reduce(Reduction::sum, dtype, out, term.data, count);
    } else if (out != term.data) {
      copy_bytes(out, term.data, count * size_of(dtype));
    }
    empty = false;
  }
  if (empty) std::memset(out, 0, count * size_of(dtype));
}

}  // namespace starling::flock
