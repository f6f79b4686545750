#include "starling/launch/job.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/os/pipe.h"
#include "starling/base/os/processes.h"
#include "starling/base/system_error.h"
#include "starling/launch/cpus.h"

namespace starling::launch {
namespace {

// Only our end is nonblocking: the rank's writes block, as it expects.
Pipe output_pipe() {
  Pipe pipe = make_pipe();
  do_not_block(pipe.read_end);
  return pipe;
}

std::vector<Descriptor> open_logs(const std::string& folder, Rank n, bool append) {
  std::vector<Descriptor> logs(static_cast<std::size_t>(n));
  if (folder.empty()) return logs;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw InvalidArgument(fmt::format("cannot create the log folder '{}': {}", folder, error.message()));
  for (Rank rank = 0; rank < n; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.log", folder, rank);
    Descriptor log(
        open(path.c_str(), O_WRONLY | O_CREAT | (append ? 0 : O_TRUNC) | O_APPEND | O_CLOEXEC, 0666));
    if (!log) throw SystemError(fmt::format("cannot write the log '{}'", path), errno);
    logs[static_cast<std::size_t>(rank)] = std::move(log);
  }
  return logs;
}

bool same_file(int a, int b) {
  struct stat x {};
  struct stat y {};
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Marks the processes of one part: other parts of the job may run on this machine, too, and outlive this one.
std::string part_name(const std::string& token, const JobPart& part) {
  return fmt::format("{}.{}", token, part.first);
}

// A connection to a host gets only the token, by which the guard finds leftover processes.
Environment environment_for(const LaunchOptions& options, const std::string& token, std::size_t cpus) {
  Environment environment;
  if (options.hosts.empty()) {
    environment = job_environment(token, options.ranks, cpus, options.environment);
  } else {
    environment.set(environment::kJob.name, token);
  }
  if (options.part) environment.set(environment::kPart.name, part_name(token, *options.part));
  return environment;
}

std::string guarded(const LaunchOptions& options, const std::string& token) {
  return options.part ? environment::kPart.assignment(part_name(token, *options.part))
                      : environment::kJob.assignment(token);
}

}  // namespace

rlim_t Job::files_needed(Rank ranks) {
  return 4 * static_cast<rlim_t>(ranks) + 64;
}

Job::Job(const LaunchOptions& options, LauncherMode& mode)
    : options_(options),
      cpus_(allowed_cpus()),
      token_(options.token.empty() ? random_token() : options.token),
      environment_(environment_for(options, token_, cpus_.size())),
      file_(options.body ? "" : find_program(options.command.front(), environment_.get("PATH"))),
      earlier_children_(descendants(getpid())),
      mode_(mode),
      logs_(open_logs(options.log_dir, options.ranks, options.append_logs)),
      guard_(guarded(options, token_)),
      out_sink_(STDOUT_FILENO),
      err_sink_(STDERR_FILENO),
      err_(same_file(STDOUT_FILENO, STDERR_FILENO) ? &out_sink_ : &err_sink_),
      // At a terminal, all ranks stay in our process group, so that rank 0 may read from it.
      shares_group_(options.hosts.empty() && isatty(STDIN_FILENO) != 0),
      continues_(options.continues),
      deaths_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!deaths_) throw SystemError("cannot monitor processes", errno);
  earlier_children_.push_back(guard_.pid());
  try {
    options_.hosts.empty() ? start_ranks() : start_hosts();
  } catch (...) {
    kill_now();
    loop();
    throw;
  }
  if (options_.timeout) timeout_at_ = in_seconds(*options_.timeout);
  takes_signal_requests_ = options_.part.has_value();
  // On a new line, after any output of a login shell.
  if (takes_signal_requests_) out_sink_.append("\n" + record_head(HostRecordKind::up, 0) + "\n");
}

Job::Clock::time_point Job::in_seconds(double seconds) {
  const std::chrono::duration<double> capped(std::min(seconds, 1e9));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(capped);
}

ChildPlan Job::common_plan() const {
  ChildPlan plan;
  plan.file = file_;
  plan.arguments = options_.command;
  plan.body = options_.body;
  plan.environment = environment_.entries();
  plan.own_group = !shares_group_;
  plan.default_sigpipe = mode_.sigpipe_was_default();
  plan.mask = mode_.old_mask();
  plan.files = mode_.old_files();
  return plan;
}

void Job::start(const ChildPlan& plan) {
  const pid_t pid = start_child(plan);
  Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(children_.size());
  if (!pidfd || epoll_ctl(deaths_.get(), EPOLL_CTL_ADD, pidfd.get(), &event) != 0) {
    const int error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    throw SystemError(fmt::format("cannot monitor process {}", pid), error);
  }
  children_.push_back({pid, std::move(pidfd)});
  ++running_;
}

void Job::start_ranks() {
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) throw SystemError("cannot open /dev/null", errno);
  open_notices();
  ChildPlan plan = common_plan();
  const JobPart part = options_.part.value_or(JobPart{0, options_.ranks});
  members_.reserve(static_cast<std::size_t>(options_.ranks));
  for (Rank rank = 0; rank < options_.ranks; ++rank) {
    Pipe out = options_.share_output ? Pipe{} : output_pipe();
    Pipe err = options_.share_output ? Pipe{} : output_pipe();
    const RankNumbers numbers{part.first + rank, part.size, rank, options_.ranks};
    plan.environment = rank_environment(environment_, numbers).entries();
    if (options_.bind) plan.cpus = share_of_cpus(cpus_, rank, options_.ranks);
    plan.input = rank == 0 && !options_.part ? STDIN_FILENO : nothing.get();
    plan.output = options_.share_output ? STDOUT_FILENO : out.write_end.get();
    plan.error = options_.share_output ? STDERR_FILENO : err.write_end.get();
    start(plan);
    const auto number = static_cast<std::size_t>(rank);
    // All records use standard output, so that they stay in order.
    members_.push_back(
        {RankOutput(options_.part ? record_heads(numbers.rank) : label_heads(std::to_string(rank), number),
                    std::move(out.read_end), out_sink_, std::move(err.read_end),
                    options_.part ? out_sink_ : *err_, std::move(logs_[number]))});
    ++living_;
  }
}

void Job::loop() {
  while (!finished_) {
    if (running_ == 0 && !sweeping_) {
      sweep();
      continue;
    }
    wait_for_events();
    check_output();
    check_clock();
  }
}

JobResult Job::run() {
  loop();
  for (Member& member : members_) member.output.finish();
  for (HostLink& link : links_) link.messages().finish();
  report();
  flush();
  const int status = exit_status();
  const bool asked = end_signal_ != 0 || timed_out_ || second_interrupt_ || broken_pipe_;
  return {status, status != 0 && !asked};
}

int Job::milliseconds_to_deadline() const {
  Deadline next;
  for (const Deadline& deadline : {timeout_at_, stop_at_, kill_at_, give_up_at_})
    if (deadline && (!next || *deadline < *next)) next = deadline;
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

void Job::wait_for_events() {
  std::vector<pollfd> polled;
  std::vector<std::function<void()>> actions;
  const auto watch = [&](int fd, short events, std::function<void()> action) {
    polled.push_back({fd, events, 0});
    actions.push_back(std::move(action));
  };
  const auto watch_sink = [&](Sink& sink) {
    if (sink.waiting()) watch(sink.fd(), POLLOUT, [&sink] { sink.write_some(); });
  };
  const auto watch_output = [&](RankOutput& output) {
    for (const int which : {0, 1}) {
      const RankOutput::Stream& stream = output.stream(which);
      if (stream.pipe && !stream.sink->full())
        watch(stream.pipe.get(), POLLIN, [&output, which] { output.read_some(which, 1); });
    }
  };
  watch_sink(out_sink_);
  watch_sink(err_sink_);
  for (Member& member : members_) watch_output(member.output);
  for (HostLink& link : links_) {
    watch_sink(link.input());
    watch_output(link.messages());
    if (link.records() >= 0 && wants_records())
      watch(link.records(), POLLIN, [this, &link] { read_records(link); });
  }
  if (notices_.read_end) watch(notices_.read_end.get(), POLLIN, [this] { read_notices(); });
  if (takes_signal_requests_) watch(STDIN_FILENO, POLLIN, [this] { read_signal_requests(); });
  watch(mode_.signals(), POLLIN, [this] { read_signals(); });
  if (poll(polled.data(), polled.size(), milliseconds_to_deadline()) <= 0) return;
  for (std::size_t i = 0; i < polled.size(); ++i)
    if (polled[i].revents != 0) actions[i]();
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
  if (passed(stop_at_)) {
    if (!recently_signalled()) say("stopping " + living_ranks());
    stop();
  }
  if (passed(kill_at_)) {
    kill_at_.reset();
    if (sweeping_) {
      kill_leftovers();
    } else {
      say(fmt::format("killing what did not end within {:g} s: {}", grace_, living_ranks()));
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

// The reader of our output is gone: end the job, as SIGPIPE ends a single program.
void Job::check_output() {
  if (out_sink_.error() != EPIPE || broken_pipe_) return;
  broken_pipe_ = true;
  if (living_ > 0 && !stopping_) stop();
}

}  // namespace starling::launch
