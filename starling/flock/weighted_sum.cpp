#include "starling/flock/weighted_sum.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/arithmetic.h"

namespace starling::flock {

void check_weight(DType dtype, double weight) {
  if (!is_floating(dtype) && weight != 0 && weight != 1)
    throw InvalidArgument(
        fmt::format("a window of {} accepts only weights 0 and 1, not {}", name(dtype), weight));
}

void weighted_sum(Buffer out, std::span<const Term> terms) {
  const Arithmetic& arithmetic = kernel::arithmetic_in(out.memory);
  if (is_floating(out.dtype)) {
    arithmetic.combine(out, terms);
    return;
  }
  for (const Term& term : terms) check_weight(out.dtype, term.weight);
  bool empty = true;
  for (const Term& term : terms) {
    if (term.weight == 0) continue;
    const ConstBuffer value(out.dtype, term.data, out.count, term.memory, nullptr);
    if (!empty) {
      arithmetic.reduce(Reduction::sum, out, value);
    } else if (out.address() != term.data) {
      arithmetic.copy(out, value);
    }
    empty = false;
  }
  if (empty) arithmetic.zero(out);
}

}  // namespace starling::flock
