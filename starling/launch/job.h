#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/signalfd.h>
#include <sys/types.h>
#include <vector>

#include "starling/base/os/child.h"
#include "starling/base/os/pipe.h"
#include "starling/launch/environment.h"
#include "starling/launch/guard.h"
#include "starling/launch/host_link.h"
#include "starling/launch/launcher.h"
#include "starling/launch/launcher_mode.h"
#include "starling/launch/output.h"

namespace starling::launch {

struct JobResult {
  int status = 0;                 // exit status for the launcher
  bool failed_by_itself = false;  // it was not ended by the user or the timeout
};

/// A running job and its event loop: runs the ranks, then ends the processes that they left behind.
/// Single-threaded; owned by launch().
class Job {
 public:
  /// The number of file descriptors that a launcher of `ranks` ranks needs.
  static rlim_t files_needed(Rank ranks);

  /// Starts the ranks. If it throws, no process is left running.
  Job(const LaunchOptions& options, LauncherMode& mode);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Runs until all processes of the job have ended.
  JobResult run();

 private:
  using Clock = std::chrono::steady_clock;
  using Deadline = std::optional<Clock::time_point>;

  struct Member {
    RankOutput output;
    Ending ending{};
    bool alive = true;
  };
  // A child process: a rank, or the connection to a host.
  struct Child {
    pid_t pid;
    Descriptor pidfd;
    bool alive = true;
  };
  struct Failure {
    std::string who;
    Ending ending;
    const RankOutput* output;
  };

  ChildPlan common_plan() const;
  void start_ranks();
  void start(const ChildPlan& plan);
  static Clock::time_point in_seconds(double seconds);

  // The event loop.
  void loop();
  void wait_for_events();
  int milliseconds_to_deadline() const;
  void read_signals();
  void on_signal(const signalfd_siginfo& info);
  void reap();
  void collect_dead();
  void on_exit(Rank rank, int status);
  void open_notices();
  void read_notices();
  void on_notice(char notice);
  /// Whether the others continue when a rank fails. Ranks that are all suspended do not.
  bool others_continue() const;
  void end_unless_others_continue(bool at_once);
  /// The signal that has suspended the rank, such as SIGSTOP; "" if it runs.
  std::string suspension(Rank rank) const;
  Rank suspended_ranks() const;
  /// A note for the end of a message about failures.
  std::string suspended_note() const;
  /// Whether a failed rank does not fail the job, because the others have continued without it.
  bool tolerates_failures() const;
  std::string continuing() const;
  /// Seconds that the others have to end by themselves, or to announce that they continue.
  double time_to_end() const;
  // Prints `how` at once, unless it is empty.
  void fail(const std::string& who, const std::string& how, const Ending& ending, const RankOutput& output,
            bool never_started = false);
  void check_clock();
  void check_output();

  // Jobs over several hosts: the main launcher, and those of the hosts.
  void start_hosts();
  bool wants_records() const;
  void read_records(HostLink& link);
  void on_record(HostLink& link, const HostRecord& record);
  void on_link_end(std::size_t host, int status);
  void signal_hosts(int signal, bool whole_group);
  void read_signal_requests();
  void on_signal_request(const SignalRequest& request);
  void report_exit(Rank rank, int status);

  // Ways to end the job, from gentle to final.
  void signal_ranks(int signal, bool whole_group);
  bool recently_signalled() const;
  void stop();
  void kill_after(double grace);
  void kill_now();
  std::vector<pid_t> leftovers() const;
  void sweep();
  void stop_leftovers();
  void kill_leftovers();

  // Messages.
  void say(const std::string& text);
  std::string name_of(Rank rank) const;
  std::string living_ranks() const;
  void report();
  void flush();
  int exit_status() const;

  LaunchOptions options_;
  std::vector<int> cpus_;
  std::string token_;
  Environment environment_;
  std::string file_;
  std::vector<pid_t> earlier_children_;  // children older than the job, e.g. >(tee log) of a shell
  LauncherMode& mode_;
  std::vector<Descriptor> logs_;
  Guard guard_;
  Sink out_sink_, err_sink_;
  Sink* err_;  // out_sink_ if both are the same file, so that lines are not mixed
  bool shares_group_;
  Pipe notices_;  // from local ranks, which inherit its write end
  bool continues_;
  int joining_ = 0;    // ranks that have announced that they join, less those that have joined
  Descriptor deaths_;  // epoll of pidfds, which reports them in the order of their deaths
  std::vector<Member> members_;
  std::vector<HostLink> links_;  // empty if the ranks are direct children
  std::vector<Child> children_;  // of members_ or of links_
  Rank living_ = 0;              // ranks
  std::size_t running_ = 0;      // children
  bool takes_signal_requests_ = false;
  LineSplitter request_lines_;

  bool sweeping_ = false, finished_ = false;
  bool stopping_ = false, killed_ = false, timed_out_ = false, broken_pipe_ = false;
  bool interrupted_ = false, second_interrupt_ = false;  // by SIGINT
  int end_signal_ = 0;                                   // the last terminating signal that was forwarded
  Clock::time_point end_signal_at_{};
  std::vector<Failure> failures_;  // not caused by the launcher, in order
  std::vector<pid_t> stopped_;     // leftover processes that were sent SIGTERM
  Deadline timeout_at_, stop_at_, kill_at_, give_up_at_;
  double grace_ = 0;  // the grace period that ends at kill_at_
};

}  // namespace starling::launch
