#include "starling/method/method.h"

#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling {

void Method::check(const Schedule& schedule) const {
  if (schedule.mixing() == Mixing::two_block)
    throw InvalidArgument(fmt::format("{} mixes two blocks per rank, which only dsgd-atc can; with {} use {}",
                                      schedule.name(), spec, works_on()));
  if (schedule.mixing() == Mixing::push_sum)
    throw InvalidArgument(fmt::format(
        "{} only keeps sums, which push-sum, push-diging and async-push-sum can follow; with {} use {}",
        schedule.name(), spec, works_on()));
}
only keeps sums, which needs push - sum; ring, exponential and one-peer-exponential "
                    "average as they are",
                    schedule.name()));
}

}  // namespace starling
