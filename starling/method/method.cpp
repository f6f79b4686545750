#include "starling/method/method.h"

#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling {

void Method::check(const Schedule& schedule) const {
  if (schedule.mixing() == Mixing::two_block)
    throw InvalidArgument(fmt::format("{} mixes two blocks per rank, which only dsgd-atc can; with {} use {}",
                                      schedule.name(), spec, works_on()));
  if (schedule.mixing() == Mixing::push_sum)
    throw InvalidArgument(
        fmt::format("{} only keeps sums, which needs push-sum, push-diging or async-push-sum; with {} use {}",
                    schedule.name(), spec, works_on()));
}

}  // namespace starling
