#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/launcher_notice.h"
#include "starling/launch/job.h"
#include "starling/launch/processes.h"

// How a job ends: signals, deaths, and what is left behind.

namespace starling::launch {

void Job::read_signals() {
  signalfd_siginfo info;
  while (read(takeover_.signals(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else {
      on_signal(info);
    }
  }
}

void Job::on_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    signal_ranks(signal, false);  // helpers of a rank would die of it
    return;
  }
  if (signal == SIGTSTP) {
    signal_ranks(SIGSTOP, true);
    raise(SIGSTOP);  // comes back with SIGCONT
    signal_ranks(SIGCONT, true);
    return;
  }
  if (signal == SIGINT && std::exchange(interrupted_, true)) {
    second_interrupt_ = true;
    say("killed by a second SIGINT");
    kill_now();
    return;
  }
  told_to_end_ = signal;
  told_at_ = Clock::now();
  if (sweeping_) {
    kill_at_ = Clock::now();
  } else if (signal != SIGINT) {  // whoever has typed that may type it again
    kill_after(options_.signal_grace);
  }
  // The terminal has told everyone in its foreground group already.
  const bool told = shares_group_ && info.ssi_code == SI_KERNEL;
  if (!told) signal_ranks(signal, true);
}

void Job::signal_ranks(int signal, bool whole_group) {
  if (!links_.empty()) return signal_hosts(signal, whole_group);
  for (const Child& child : children_)
    if (child.alive) kill(whole_group && !shares_group_ ? -child.pid : child.pid, signal);
}

// Ranks first and in the order of their deaths, then orphans that we were given.
void Job::reap() {
  while (true) {
    collect_dead();
    siginfo_t dead{};
    if (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) != 0 || dead.si_pid == 0) break;
    const auto is_it = [&](const Child& child) { return child.alive && child.pid == dead.si_pid; };
    if (std::ranges::none_of(children_, is_it)) waitpid(dead.si_pid, nullptr, WNOHANG);
  }
  if (sweeping_ && killed_) kill_leftovers();
  if (sweeping_ && !killed_) stop_leftovers();
}

void Job::collect_dead() {
  std::vector<epoll_event> events(children_.size());
  const int count = epoll_wait(deaths_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::size_t index = events[static_cast<std::size_t>(i)].data.u32;
    Child& child = children_[index];
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    epoll_ctl(deaths_.get(), EPOLL_CTL_DEL, child.pidfd.get(), nullptr);
    child.pidfd.reset();
    child.alive = false;
    --running_;
    links_.empty() ? on_exit(static_cast<Rank>(index), status) : on_link_end(index, status);
  }
}

void Job::on_exit(Rank rank, int status) {
  Member& member = members_[static_cast<std::size_t>(rank)];
  member.alive = false;
  member.ending.status = status;
  --living_;
  for (const int which : {0, 1}) member.output.read_some(which, 1 << 20);
  read_notices();  // what it said before it ended
  if (options_.part) tell_ended(rank, status);
  if (options_.on_exit) options_.on_exit(rank);
  if (!member.ending.failed()) return;
  // With our own streams only those who were killed have not told it themselves; the last one is in the
  // report.
  const bool news = options_.share_output ? member.ending.signal() != 0 : living_ > 0;
  const char* verb = member.ending.signal() != 0 ? "was killed" : "failed";
  fail(name_of(rank), news && !options_.part ? fmt::format("{} ({})", verb, member.ending.text()) : "",
       member.ending, member.output);
}

void Job::open_notices() {
  int ends[2];
  struct stat file {};
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return;  // they do without
  notices_ = {Fd(ends[0]), Fd(ends[1])};
  if (fstat(ends[1], &file) != 0 || fcntl(ends[1], F_SETFD, 0) != 0) return;
  environment_.set(kLauncherVariable, fmt::format("{}:{}:{}", ends[1], file.st_dev, file.st_ino));
}

void Job::read_notices() {
  char notice = 0;
  while (notices_.read_end && recv(notices_.read_end.get(), &notice, 1, 0) == 1) on_notice(notice);
}

// On its host a part's launcher only passes it on.
void Job::on_notice(char notice) {
  if (notice != static_cast<char>(LauncherNotice::goes_on) &&
      notice != static_cast<char>(LauncherNotice::needs_everybody))
    return;
  const bool told = notice == static_cast<char>(LauncherNotice::goes_on);
  const bool news = std::exchange(continues_, told) != told;
  if (options_.part && news)
    out_sink_.append(record_head(RecordKind::notice, options_.part->first) + notice + "\n");
}

bool Job::goes_on() const {
  return options_.on_failure == OnFailure::go_on || (options_.on_failure == OnFailure::as_told && continues_);
}

bool Job::tolerates_failures() const {
  return continues_ && options_.on_failure != OnFailure::stop && told_to_end_ == 0;
}

// A line of progress that a rank has drawn on the terminal makes room.
void Job::say(const std::string& text) {
  const bool over_progress = options_.share_output && isatty(STDERR_FILENO) != 0;
  err_->append(fmt::format("{}starling: {}\n", over_progress ? "\r\033[K" : "", text));
}

void Job::fail(const std::string& who, const std::string& how, const Ending& ending,
               const RankOutput& output) {
  if (stopping_ || killed_) return;
  failures_.push_back({who, ending, &output});
  std::string rest;
  if (living_ > 0 && goes_on()) {
    rest = fmt::format("; continuing with {} rank{}", living_, living_ == 1 ? "" : "s");
    if (!options_.after_death.empty()) rest += ", " + options_.after_death;
  } else if (living_ > 0) {
    rest = "; stopping the others";
  }
  if (!how.empty() && !just_told()) say(fmt::format("{} {}{}", who, how, rest));
  if (!goes_on() && living_ > 0) stop();
}

bool Job::just_told() const {
  return told_to_end_ != 0 && Clock::now() < told_at_ + std::chrono::seconds(10);
}

void Job::stop() {
  stopping_ = true;
  // Who is just saving its work because of a SIGINT needs no SIGTERM on top.
  if (!just_told() || timed_out_) signal_ranks(SIGTERM, true);
  kill_after(options_.grace);
}

void Job::kill_after(double grace) {
  if (kill_at_) return;
  grace_ = grace;
  kill_at_ = in_seconds(grace);
}

void Job::kill_now() {
  constexpr double kPatience = 10;  // a process in the hands of a broken driver does not die at all
  killed_ = true;
  if (!give_up_at_) give_up_at_ = in_seconds(kPatience);
  kill_at_.reset();
  signal_ranks(SIGKILL, true);
  if (sweeping_) kill_leftovers();
}

std::vector<pid_t> Job::leftovers() const {
  return descendants(getpid(), spared_);
}

void Job::sweep() {
  sweeping_ = true;
  kill_at_.reset();
  timeout_at_.reset();
  if (killed_ || second_interrupt_) {
    kill_leftovers();
    return;
  }
  kill_at_ = in_seconds(options_.grace);
  stop_leftovers();
}

// Called again at every death: a process may have forked just before it died.
void Job::stop_leftovers() {
  const auto pids = leftovers();
  for (const pid_t pid : pids) {
    if (std::ranges::find(stopped_, pid) != stopped_.end()) continue;
    kill(pid, SIGTERM);
    stopped_.push_back(pid);
  }
  finished_ = pids.empty();
}

// Called again at every death, too: what a killed process had started is ours by then.
void Job::kill_leftovers() {
  const auto pids = leftovers();
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  finished_ = pids.empty();
  if (!killed_ && !finished_) kill_now();
}

std::string Job::name_of(Rank rank) const {
  for (const HostLink& link : links_)
    if (link.has(rank)) return fmt::format("rank {} on {}", rank, link.name());
  return fmt::format("rank {}", rank);
}

std::string Job::living_ranks() const {
  std::vector<std::string> names;
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    if (!members_[static_cast<std::size_t>(rank)].alive) continue;
    if (names.size() == 8) {
      names.push_back(fmt::format("and {} more", living_ - 8));
      break;
    }
    names.push_back(std::to_string(options_.part ? options_.part->first + rank : rank));
  }
  return fmt::format("rank{} {}", living_ == 1 ? "" : "s", join_words(names));
}

void Job::report() {
  for (Rank rank = 0; rank < options_.ranks; ++rank)
    if (const int error = members_[static_cast<std::size_t>(rank)].output.log_error(); error != 0)
      say(fmt::format("the log of rank {} is incomplete: {}", rank, std::strerror(error)));
  if (const int error = out_sink_.error(); error != 0 && error != EPIPE)
    say(fmt::format("standard output is incomplete: {}", std::strerror(error)));
  if (timed_out_ || second_interrupt_ || options_.part) return;
  const bool ended_by_signal =
      told_to_end_ != 0 && (failures_.empty() ? killed_ : failures_.front().ending.signal() == told_to_end_);
  if (ended_by_signal) {
    say(fmt::format("stopped by {}", signal_name(told_to_end_)));
    return;
  }
  if (options_.share_output || failures_.empty()) return;
  const Failure& first = failures_.front();
  if (exit_status() == 0) {
    std::vector<std::string> failed;
    for (const Failure& one : failures_) failed.push_back(fmt::format("{} ({})", one.who, one.ending.text()));
    const auto well = std::ranges::count_if(members_, [](const Member& one) { return !one.ending.failed(); });
    say(fmt::format("{} of {} ranks finished, without {}", well, options_.ranks, join_words(failed)));
    return;
  }
  const auto& lines = first.output->last_lines();
  say(fmt::format("{} failed first, {}; {}", first.who, first.ending.text(),
                  lines.empty() ? "it printed nothing" : "its last lines:"));
  for (const std::string& line : lines) err_->append("    " + line + "\n");
  std::vector<std::string> others;
  for (std::size_t i = 1; i < failures_.size(); ++i)
    others.push_back(fmt::format("{} ({})", failures_[i].who, failures_[i].ending.text()));
  if (!others.empty()) say("failed later: " + join_words(others));
}

// Waits for a slow reader, but not against the user's will.
void Job::flush() {
  const bool bounded = killed_ || timed_out_;
  const auto limit = in_seconds(options_.grace);
  for (Sink* sink : {&out_sink_, &err_sink_}) {
    while (sink->waiting()) {
      pollfd polled[2] = {{sink->fd(), POLLOUT, 0}, {takeover_.signals(), POLLIN, 0}};
      if (bounded && limit <= Clock::now()) return;
      if (poll(polled, 2, bounded ? 100 : -1) < 0 && errno != EINTR) return;
      if (polled[0].revents != 0) sink->write_some();
      signalfd_siginfo info;
      while (polled[1].revents != 0 && read(takeover_.signals(), &info, sizeof info) > 0)
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM) return;
    }
  }
}

int Job::exit_status() const {
  if (timed_out_) return 124;
  if (second_interrupt_) return 128 + SIGINT;
  const auto went_well = [](const Member& member) { return !member.ending.failed(); };
  if (tolerates_failures() && std::ranges::any_of(members_, went_well)) return 0;
  if (!failures_.empty()) return failures_.front().ending.exit_status();
  if (killed_ && told_to_end_ != 0) return 128 + told_to_end_;
  if (broken_pipe_) return 128 + SIGPIPE;
  return out_sink_.error() != 0 ? 1 : 0;
}

}  // namespace starling::launch
