#include "starling/launch/launcher.h"

#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/launch/job.h"

namespace starling::launch {

int launch(const LaunchOptions& options) {
  if (options.ranks < 1)
    throw InvalidArgument(fmt::format("the number of ranks must be at least 1, not {}", options.ranks));
  if (options.command.empty()) throw InvalidArgument("no program to run");
  if (options.timeout && !(*options.timeout > 0 && std::isfinite(*options.timeout)))
    throw InvalidArgument(
        fmt::format("the timeout must be a positive number of seconds, not {}", *options.timeout));
  return Job(options).run();
}

}  // namespace starling::launch
