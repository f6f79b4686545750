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

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/launcher_notice.h"
#include "starling/base/os/processes.h"
#include "starling/launch/job.h"

// How a job ends: signals, deaths, and leftover processes.

namespace starling::launch {

void Job::read_signals() {
  signalfd_siginfo info;
  while (read(mode_.signals(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
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
    signal_ranks(signal, false);  // other processes of a rank would die of it
    return;
  }
  if (signal == SIGTSTP) {
    signal_ranks(SIGSTOP, true);
    raise(SIGSTOP);  // returns after SIGCONT
    signal_ranks(SIGCONT, true);
    return;
  }
  if (signal == SIGINT && std::exchange(interrupted_, true)) {
    second_interrupt_ = true;
    say("killed by a second SIGINT");
    kill_now();
    return;
  }
  end_signal_ = signal;
  end_signal_at_ = Clock::now();
  if (sweeping_) {
    kill_at_ = Clock::now();
  } else if (signal != SIGINT) {  // the user may press Ctrl-C again
    kill_after(options_.signal_grace);
  }
  // The terminal has already signalled its whole foreground group.
  const bool already_signalled = shares_group_ && info.ssi_code == SI_KERNEL;
  if (!already_signalled) signal_ranks(signal, true);
  signal_ranks(SIGCONT, true);  // a suspended rank gets the signal only when it runs again
}

void Job::signal_ranks(int signal, bool whole_group) {
  if (!links_.empty()) return signal_hosts(signal, whole_group);
  for (const Child& child : children_)
    if (child.alive) kill(whole_group && !shares_group_ ? -child.pid : child.pid, signal);
}

// Reaps ranks first, in the order of their deaths, then adopted orphans.
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
  read_notices();  // sent before the rank ended
  if (options_.part) report_exit(rank, status);
  if (options_.on_exit) options_.on_exit(rank);
  if (!member.ending.failed()) {
    if (!failures_.empty()) end_unless_others_continue(false);
    return;
  }
  // With shared streams, only killed ranks have not printed their failure; the failure of the last rank is in
  // the final report.
  const bool news = options_.share_output ? member.ending.signal() != 0 : living_ > 0;
  const char* verb = member.ending.signal() != 0 ? "was killed" : "failed";
  fail(name_of(rank), news && !options_.part ? fmt::format("{} ({})", verb, member.ending.text()) : "",
       member.ending, member.output);
}

void Job::open_notices() {
  int ends[2];
  struct stat file {};
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return;  // notices are optional
  notices_ = {Descriptor(ends[0]), Descriptor(ends[1])};
  if (fstat(ends[1], &file) != 0 || fcntl(ends[1], F_SETFD, 0) != 0) return;
  environment_.set(environment::kLauncher.name, fmt::format("{}:{}:{}", ends[1], file.st_dev, file.st_ino));
}

void Job::read_notices() {
  char notice = 0;
  while (notices_.read_end && recv(notices_.read_end.get(), &notice, 1, 0) == 1) on_notice(notice);
}

// The launcher of a part forwards notices to the main launcher.
void Job::on_notice(char notice) {
  const auto kind = static_cast<LauncherNotice>(notice);
  bool news = true;
  if (kind == LauncherNotice::joins) {
    ++joining_;
  } else if (kind == LauncherNotice::joined) {
    --joining_;
  } else if (kind == LauncherNotice::continues_after_failure || kind == LauncherNotice::needs_all_ranks) {
    const bool continues = kind == LauncherNotice::continues_after_failure;
    news = std::exchange(continues_, continues) != continues;
  } else {
    return;
  }
  if (stop_at_) stop_at_ = in_seconds(time_to_end());
  if (stop_at_ && others_continue()) {  // a rank failed before the flock had announced it
    stop_at_.reset();
    say(continuing());
  }
  if (options_.part && news)
    out_sink_.append(record_head(HostRecordKind::notice, options_.part->first) + notice + "\n");
}

// Ranks that are still joining cannot announce anything yet: they join without the dead ones or fail, within
// a time limit of their own. The failed ranks may have been joining, too.
double Job::time_to_end() const {
  constexpr double kJoining = 60;
  const bool joining = joining_ > static_cast<int>(failures_.size());
  return joining ? std::max(kJoining, options_.grace) : options_.grace;
}

bool Job::others_continue() const {
  if (options_.on_failure != OnFailure::as_announced) return options_.on_failure == OnFailure::keep_going;
  return continues_ && suspended_ranks() < living_;
}

bool Job::tolerates_failures() const {
  return continues_ && options_.on_failure != OnFailure::stop && end_signal_ == 0 && !stopping_;
}

// Only for ranks of this machine: the launchers of other hosts do not report suspended ranks.
std::string Job::suspension(Rank rank) const {
  const auto index = static_cast<std::size_t>(rank);
  const bool here = links_.empty() && index < children_.size() && children_[index].alive;
  const int signal = here ? suspending_signal(children_[index].pid) : 0;
  return signal == 0 ? "" : signal_name(signal);
}

Rank Job::suspended_ranks() const {
  Rank count = 0;
  for (Rank rank = 0; rank < options_.ranks; ++rank) count += suspension(rank).empty() ? 0 : 1;
  return count;
}

std::string Job::suspended_note() const {
  std::string text;
  for (Rank rank = 0; rank < options_.ranks; ++rank)
    if (const std::string signal = suspension(rank); !signal.empty())
      text += fmt::format("; {} is suspended by {}", name_of(rank), signal);
  return text;
}

// Overwrites a progress line that a rank has drawn on the terminal.
void Job::say(const std::string& text) {
  const bool over_progress = options_.share_output && isatty(STDERR_FILENO) != 0;
  err_->append(fmt::format("{}starling: {}\n", over_progress ? "\r\033[K" : "", text));
}

std::string Job::continuing() const {
  const Rank running = living_ - suspended_ranks();
  if (!options_.after_death.empty())
    return fmt::format("{} of {} continue, {}{}", running, options_.ranks, options_.after_death,
                       suspended_note());
  return fmt::format("continuing with {} {}{}{}", running, options_.noun, running == 1 ? "" : "s",
                     suspended_note());
}

// Survivors may still announce that they continue, or print an error, so they are not stopped at once unless
// the user asked for that. Those that fail in the meantime appear only in the final report.
void Job::fail(const std::string& who, const std::string& how, const Ending& ending, const RankOutput& output,
               bool never_started) {
  if (stopping_ || killed_) return;
  failures_.push_back({who, ending, &output});
  if (stop_at_ && !never_started) return;
  const bool at_once = options_.on_failure == OnFailure::stop || never_started;
  std::string rest;
  if (living_ > 0 && others_continue()) {
    rest = "; " + continuing();
  } else if (living_ > 0) {
    rest = at_once ? "; stopping the others" : fmt::format("; the others have {:g} s to end", time_to_end());
    rest += suspended_note();
  }
  if (!how.empty() && !recently_signalled()) say(fmt::format("{} {}{}", who, how, rest));
  end_unless_others_continue(at_once);
}

void Job::end_unless_others_continue(bool at_once) {
  if (stopping_ || killed_ || others_continue() || living_ == 0) return;
  if (at_once) {
    stop();
  } else if (!stop_at_) {
    stop_at_ = in_seconds(time_to_end());
  }
}

bool Job::recently_signalled() const {
  return end_signal_ != 0 && Clock::now() < end_signal_at_ + std::chrono::seconds(10);
}

void Job::stop() {
  stopping_ = true;
  stop_at_.reset();
  // A rank that saves its work after SIGINT must not get a SIGTERM in addition.
  if (!recently_signalled() || timed_out_) signal_ranks(SIGTERM, true);
  signal_ranks(SIGCONT, true);
  kill_after(options_.grace);
}

void Job::kill_after(double grace) {
  if (kill_at_) return;
  grace_ = grace;
  kill_at_ = in_seconds(grace);
}

void Job::kill_now() {
  constexpr double kPatience = 10;  // a process in uninterruptible sleep may never die
  killed_ = true;
  stop_at_.reset();
  if (!give_up_at_) give_up_at_ = in_seconds(kPatience);
  kill_at_.reset();
  signal_ranks(SIGKILL, true);
  if (sweeping_) kill_leftovers();
}

std::vector<pid_t> Job::leftovers() const {
  return descendants(getpid(), earlier_children_);
}

void Job::sweep() {
  sweeping_ = true;
  kill_at_.reset();
  stop_at_.reset();
  timeout_at_.reset();
  if (killed_ || second_interrupt_) {
    kill_leftovers();
    return;
  }
  kill_at_ = in_seconds(options_.grace);
  stop_leftovers();
}

// Repeated at every death: a process may have forked just before it died.
void Job::stop_leftovers() {
  const auto pids = leftovers();
  for (const pid_t pid : pids) {
    if (std::ranges::find(stopped_, pid) != stopped_.end()) continue;
    kill(pid, SIGTERM);
    stopped_.push_back(pid);
  }
  finished_ = pids.empty();
}

// Repeated at every death, too: children of killed processes have become our children by then.
void Job::kill_leftovers() {
  const auto pids = leftovers();
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  finished_ = pids.empty();
  if (!killed_ && !finished_) kill_now();
}

std::string Job::name_of(Rank rank) const {
  for (const HostLink& link : links_)
    if (link.has(rank)) return fmt::format("{} {} on {}", options_.noun, rank, link.name());
  return fmt::format("{} {}", options_.noun, rank);
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
    if (const std::string signal = suspension(rank); !signal.empty())
      names.back() += fmt::format(" (suspended by {})", signal);
  }
  return fmt::format("{}{} {}", options_.noun, living_ == 1 ? "" : "s", join_words(names));
}

void Job::report() {
  for (Rank rank = 0; rank < options_.ranks; ++rank)
    if (const int error = members_[static_cast<std::size_t>(rank)].output.log_error(); error != 0)
      say(fmt::format("the log of {} {} is incomplete: {}", options_.noun, rank, std::strerror(error)));
  if (const int error = out_sink_.error(); error != 0 && error != EPIPE)
    say(fmt::format("standard output is incomplete: {}", std::strerror(error)));
  if (timed_out_ || second_interrupt_ || options_.part) return;
  const bool ended_by_signal =
      end_signal_ != 0 && (failures_.empty() ? killed_ : failures_.front().ending.signal() == end_signal_);
  if (ended_by_signal) {
    say(fmt::format("stopped by {}", signal_name(end_signal_)));
    return;
  }
  if (options_.share_output || failures_.empty()) return;
  const Failure& first = failures_.front();
  if (exit_status() == 0) {
    std::vector<std::string> failed;
    for (const Failure& one : failures_) failed.push_back(fmt::format("{} ({})", one.who, one.ending.text()));
    const auto well = std::ranges::count_if(members_, [](const Member& one) { return !one.ending.failed(); });
    say(fmt::format("{} of {} {}s finished, without {}", well, options_.ranks, options_.noun,
                    join_words(failed)));
    return;
  }
  const auto& lines = first.output->last_lines();
  say(fmt::format("{} failed first, {}; {}", first.who, first.ending.text(),
                  lines.empty() ? "it printed nothing" : "its last lines:"));
  for (const std::string& line : lines) err_->append("    " + line + "\n");
  std::vector<std::string> others;
  constexpr std::size_t kMostNames = 8;
  for (std::size_t i = 1; i < failures_.size() && i <= kMostNames; ++i)
    others.push_back(fmt::format("{} ({})", failures_[i].who, failures_[i].ending.text()));
  if (failures_.size() > kMostNames + 1)
    others.push_back(fmt::format("and {} more", failures_.size() - kMostNames - 1));
  if (!others.empty()) say("failed later: " + join_words(others));
}

// Waits for a slow reader, unless the user or the timeout has ended the job.
void Job::flush() {
  const bool bounded = killed_ || timed_out_;
  const auto limit = in_seconds(options_.grace);
  for (Sink* sink : {&out_sink_, &err_sink_}) {
    while (sink->waiting()) {
      pollfd polled[2] = {{sink->fd(), POLLOUT, 0}, {mode_.signals(), POLLIN, 0}};
      if (bounded && limit <= Clock::now()) return;
      if (poll(polled, 2, bounded ? 100 : -1) < 0 && errno != EINTR) return;
      if (polled[0].revents != 0) sink->write_some();
      signalfd_siginfo info;
      while (polled[1].revents != 0 && read(mode_.signals(), &info, sizeof info) > 0)
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
  if (killed_ && end_signal_ != 0) return 128 + end_signal_;
  if (broken_pipe_) return 128 + SIGPIPE;
  return out_sink_.error() != 0 ? 1 : 0;
}

}  // namespace starling::launch
