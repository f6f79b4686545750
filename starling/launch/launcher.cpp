#include "starling/launch/launcher.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <iostream>
#include <string_view>
#include <sys/resource.h>

#include "starling/base/error.h"
#include "starling/launch/exits.h"
#include "starling/launch/job.h"

namespace starling::launch {
namespace {

void check(const LaunchOptions& options) {
  if (options.ranks < 1)
    throw InvalidArgument(fmt::format("the number of ranks must be at least 1, not {}", options.ranks));
  if (options.command.empty()) throw InvalidArgument("no program to run");
  const auto need_positive = [](const char* what, double seconds) {
    if (!(seconds > 0 && std::isfinite(seconds)))
      throw InvalidArgument(
          fmt::format("the {} must be a positive number of seconds, not {}", what, seconds));
  };
  if (options.timeout) need_positive("timeout", *options.timeout);
  need_positive("grace", options.grace);
  need_positive("grace", options.signal_grace);
}

// Many calls may be the one that finds no descriptor left; what is needed is the same for all of them.
[[noreturn]] void explain(const Error& error, Rank ranks) {
  if (!std::string_view(error.what()).ends_with(std::strerror(EMFILE))) throw;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  throw Error(fmt::format(
      "{}: the limit on open files (RLIMIT_NOFILE, ulimit -n) is {}, and to start {} ranks needs up to {}: "
      "raise it",
      error.what(), limit.rlim_cur, ranks, Job::files_needed(ranks)));
}

// Ranks that wait for others to join hear of those that have exited.
JobResult run_here(LaunchOptions options, Takeover& takeover) {
  const JobPart part = options.part.value_or(JobPart{0, options.ranks});
  ExitPage exits(part.size);
  if (exits.path().empty()) return Job(options, takeover).run();
  options.environment.push_back(fmt::format("{}={}", kExitsVariable, exits.path()));
  options.on_exit = [&exits, first = part.first, more = options.on_exit](Rank rank) {
    exits.mark(first + rank);
    if (more) more(rank);
  };
  return Job(options, takeover).run();
}

JobResult run_job(const LaunchOptions& options, Takeover& takeover) {
  try {
    return options.hosts.empty() ? run_here(options, takeover) : Job(options, takeover).run();
  } catch (const Error& error) {
    explain(error, options.ranks);
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  return launch(0, [&](int) { return options; });
}

// Signals stay ours between two attempts: one that comes then ends the next.
int launch(int restarts, const std::function<LaunchOptions(int attempt)>& plan) {
  std::optional<Takeover> takeover;
  for (int attempt = 0;; ++attempt) {
    const LaunchOptions options = plan(attempt);
    check(options);
    if (!takeover) takeover.emplace(Job::files_needed(options.ranks));
    const JobResult result = run_job(options, *takeover);
    if (!result.failed_by_itself || attempt >= restarts) return result.status;
    std::cerr << fmt::format("starling: the job has failed; starting all ranks again (restart {} of {})\n",
                             attempt + 1, restarts)
              << std::flush;
  }
}

}  // namespace starling::launch
