#include "starling/launch/launcher.h"

#include <cerrno>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <sys/resource.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/system_error.h"
#include "starling/launch/exited_ranks.h"
#include "starling/launch/job.h"

namespace starling::launch {
namespace {

void check(const LaunchOptions& options) {
  if (options.ranks < 1)
    throw InvalidArgument(fmt::format("the number of ranks must be at least 1, not {}", options.ranks));
  if (options.command.empty() && !options.body) throw InvalidArgument("no program to run");
  const auto need_positive = [](const char* what, double seconds) {
    if (!(seconds > 0 && std::isfinite(seconds)))
      throw InvalidArgument(
          fmt::format("the {} must be a positive number of seconds, not {}", what, seconds));
  };
  if (options.timeout) need_positive("timeout", *options.timeout);
  need_positive("grace", options.grace);
  need_positive("grace", options.signal_grace);
}

// Adds the limit and the needed number to any error that says "too many open files".
[[noreturn]] void add_file_limit(const SystemError& error, Rank ranks) {
  if (error.code() != EMFILE) throw;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  throw Error(fmt::format(
      "{}: the limit on open files (RLIMIT_NOFILE, ulimit -n) is {}, and starting {} ranks needs up to {}: "
      "raise it",
      error.what(), limit.rlim_cur, ranks, Job::files_needed(ranks)));
}

// Shares the exits of ranks with the ranks that wait for others to join.
JobResult run_here(LaunchOptions options, LauncherMode& mode) {
  const JobPart part = options.part.value_or(JobPart{0, options.ranks});
  ExitedRanksPage exits(part.size);
  if (exits.path().empty()) return Job(options, mode).run();
  options.environment.push_back(environment::kExits.assignment(exits.path()));
  options.on_exit = [&exits, first = part.first, more = options.on_exit](Rank rank) {
    exits.mark(first + rank);
    if (more) more(rank);
  };
  return Job(options, mode).run();
}

JobResult run_job(const LaunchOptions& options, LauncherMode& mode) {
  try {
    return options.hosts.empty() ? run_here(options, mode) : Job(options, mode).run();
  } catch (const SystemError& error) {
    add_file_limit(error, options.ranks);
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  return launch(0, [&](int) { return options; });
}

// The launcher mode lasts across attempts: a signal between two attempts ends the next one.
int launch(int restarts, const std::function<LaunchOptions(int attempt)>& plan) {
  std::optional<LauncherMode> mode;
  for (int attempt = 0;; ++attempt) {
    const LaunchOptions options = plan(attempt);
    check(options);
    if (!mode) mode.emplace(Job::files_needed(options.ranks));
    const JobResult result = run_job(options, *mode);
    if (!result.failed_by_itself || attempt >= restarts) return result.status;
    std::cerr << fmt::format("starling: the job failed; restarting all ranks (restart {} of {})\n",
                             attempt + 1, restarts)
              << std::flush;
  }
}

}  // namespace starling::launch
