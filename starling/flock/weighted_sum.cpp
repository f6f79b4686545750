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

void weighted_sum(Buffer out, std::span<const Term> terms) {
  if (is_floating(out.dtype)) {
    combine(out, terms);
    return;
  }
  for (const Term& term : terms) check_weight(out.dtype, term.weight);
  kernel::check_on_host(terms);
  bool empty = true;
  for (const Term& term : terms) {
    if (term.weight == 0) continue;
    if (!empty) {
      reduce(Reduction::sum, out.dtype, out.host_data(), term.data, out.count);
    } else if (out.host_data() != term.data) {
      copy_bytes(out.host_data(), term.data, out.bytes());
    }
    empty = false;
  }
  if (empty) std::memset(out.host_data(), 0, out.bytes());
}

}  // namespace starling::flock
