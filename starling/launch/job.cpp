#include "starling/launch/job.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "starling/base/error.h"
#include "starling/launch/cpus.h"
#include "starling/launch/processes.h"

namespace starling::launch {
namespace {

struct Pipe {
  Fd read_end, write_end;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);  // our end only: the rank's writes block as it expects
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<Fd> open_logs(const std::string& folder, Rank n) {
  std::vector<Fd> logs(static_cast<std::size_t>(n));
  if (folder.empty()) return logs;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw InvalidArgument(fmt::format("cannot make the log folder '{}': {}", folder, error.message()));
  for (Rank rank = 0; rank < n; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.log", folder, rank);
    Fd log(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!log) throw InvalidArgument(fmt::format("cannot write the log '{}': {}", path, std::strerror(errno)));
    logs[static_cast<std::size_t>(rank)] = std::move(log);
  }
  return logs;
}

bool same_file(int a, int b) {
  struct stat x {};
  struct stat y {};
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

rlim_t files_needed(Rank n) {
  return 4 * static_cast<rlim_t>(n) + 64;
}

}  // namespace

Job::Job(const LaunchOptions& options)
    : options_(options),
      cpus_(allowed_cpus()),
      token_(options.token.empty() ? random_token() : options.token),
      environment_(job_environment(token_, options.ranks, cpus_.size(), options.environment)),
      file_(find_program(options.command.front(), environment_.get("PATH"))),
      spared_(descendants(getpid())),
      takeover_(files_needed(options.ranks)),
      logs_(open_logs(options.log_dir, options.ranks)),
      guard_("STARLING_JOB=" + token_),
      out_sink_(STDOUT_FILENO),
      err_sink_(STDERR_FILENO),
      err_(same_file(STDOUT_FILENO, STDERR_FILENO) ? &out_sink_ : &err_sink_),
      // At a terminal all ranks stay in our process group: only so may rank 0 read from it.
      shares_group_(isatty(STDIN_FILENO) != 0),
      deaths_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!deaths_) throw Error(fmt::format("cannot watch processes: {}", std::strerror(errno)));
  spared_.push_back(guard_.pid());
  try {
    start_ranks();
  } catch (...) {
    kill_now();
    loop();
    throw;
  }
  if (options_.timeout) timeout_at_ = in_seconds(*options_.timeout);
}

Job::Clock::time_point Job::in_seconds(double seconds) {
  const std::chrono::duration<double> capped(std::min(seconds, 1e9));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(capped);
}

void Job::start_ranks() {
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) throw Error(fmt::format("cannot open /dev/null: {}", std::strerror(errno)));
  ChildPlan plan;
  plan.file = file_;
  plan.arguments = options_.command;
  plan.own_group = !shares_group_;
  plan.default_sigpipe = takeover_.sigpipe_was_default();
  plan.mask = takeover_.old_mask();
  plan.files = takeover_.old_files();
  members_.reserve(static_cast<std::size_t>(options_.ranks));
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    Pipe out = options_.share_output ? Pipe{} : make_pipe();
    Pipe err = options_.share_output ? Pipe{} : make_pipe();
    plan.environment = rank_environment(environment_, rank, options_.ranks).entries();
    if (options_.bind) plan.cpus = share_of_cpus(cpus_, rank, options_.ranks);
    plan.input = rank == 0 ? STDIN_FILENO : nothing.get();
    plan.output = options_.share_output ? STDOUT_FILENO : out.write_end.get();
    plan.error = options_.share_output ? STDERR_FILENO : err.write_end.get();
    const pid_t pid = start_child(plan);
    Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(rank);
    if (!pidfd || epoll_ctl(deaths_.get(), EPOLL_CTL_ADD, pidfd.get(), &event) != 0) {
      const int error = errno;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      throw Error(fmt::format("cannot watch rank {}: {}", rank, std::strerror(error)));
    }
    members_.push_back({pid, std::move(pidfd),
                        RankOutput(rank, std::move(out.read_end), out_sink_, std::move(err.read_end), *err_,
                                   std::move(logs_[static_cast<std::size_t>(rank)]))});
    ++living_;
  }
}

void Job::loop() {
  while (!finished_) {
    if (living_ == 0 && !sweeping_) {
      sweep();
      continue;
    }
    wait_for_events();
    check_output();
    check_clock();
  }
}

int Job::run() {
  loop();
  for (Member& member : members_) member.output.finish();
  report();
  flush();
  return exit_status();
}

int Job::milliseconds_to_deadline() const {
  Deadline next;
  for (const Deadline& deadline : {timeout_at_, kill_at_, give_up_at_})
    if (deadline && (!next || *deadline < *next)) next = deadline;
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

void Job::wait_for_events() {
  struct Source {
    Member* member;
    int which;
  };
  std::vector<pollfd> polled = {{takeover_.signals(), POLLIN, 0}};
  std::vector<Sink*> sinks;
  for (Sink* sink : {&out_sink_, &err_sink_}) {
    if (!sink->waiting()) continue;
    polled.push_back({sink->fd(), POLLOUT, 0});
    sinks.push_back(sink);
  }
  std::vector<Source> sources;
  for (Member& member : members_) {
    for (const int which : {0, 1}) {
      const RankOutput::Stream& stream = member.output.stream(which);
      if (!stream.pipe || stream.sink->full()) continue;
      polled.push_back({stream.pipe.get(), POLLIN, 0});
      sources.push_back({&member, which});
    }
  }
  if (poll(polled.data(), polled.size(), milliseconds_to_deadline()) <= 0) return;
  std::size_t at = 1;
  for (Sink* sink : sinks)
    if (polled[at++].revents != 0) sink->write_some();
  for (const Source& source : sources)
    if (polled[at++].revents != 0) source.member->output.read_some(source.which, 1);
  if (polled[0].revents != 0) read_signals();
}

void Job::check_clock() {
  const auto now = Clock::now();
  const auto passed = [&](const Deadline& deadline) { return deadline && *deadline <= now; };
  if (passed(timeout_at_)) {
    timeout_at_.reset();
    if (living_ > 0 && !timed_out_) {
      timed_out_ = true;
      say(fmt::format("stopped after {:g} s (--timeout); still running: {}", *options_.timeout,
                      living_ranks()));
      stop();
    }
  }
  if (passed(kill_at_)) {
    kill_at_.reset();
    if (sweeping_) {
      kill_leftovers();
    } else {
      say(fmt::format("killing what does not end within {:g} s: {}", options_.grace, living_ranks()));
      kill_now();
    }
  }
  if (passed(give_up_at_)) {
    std::vector<std::string> names;
    for (const pid_t pid : leftovers()) names.push_back(describe_process(pid));
    if (!names.empty()) say("cannot be killed: " + join_words(names));
    finished_ = true;
  }
}

// Nobody reads any more: end as a single program would, by SIGPIPE.
void Job::check_output() {
  if (out_sink_.error() != EPIPE || broken_pipe_) return;
  broken_pipe_ = true;
  if (living_ > 0 && !stopping_) stop();
}

}  // namespace starling::launch
