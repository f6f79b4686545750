#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/signalfd.h>
#include <sys/types.h>
#include <vector>

#include "starling/launch/child.h"
#include "starling/launch/environment.h"
#include "starling/launch/guard.h"
#include "starling/launch/host_link.h"
#include "starling/launch/launcher.h"
#include "starling/launch/output.h"
#include "starling/launch/pipe.h"
#include "starling/launch/takeover.h"

namespace starling::launch {

struct JobResult {
  int status = 0;                 // the exit status of the launcher
  bool failed_by_itself = false;  // not by the user's or the timeout's will
};

/// A running job: first its ranks run, then what they left behind is ended.
class Job {
 public:
  /// How many file descriptors a launcher of so many ranks wants.
  static rlim_t files_needed(Rank ranks);

  /// Starts the ranks; throws with nothing left running.
  Job(const LaunchOptions& options, Takeover& takeover);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Until everything is over.
  JobResult run();

 private:
  using Clock = std::chrono::steady_clock;
  using Deadline = std::optional<Clock::time_point>;

  struct Member {
    RankOutput output;
    Ending ending{};
    bool alive = true;
  };
  // A process that we started: a rank's own, or the way to a host.
  struct Child {
    pid_t pid;
    Fd pidfd;
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

  // The loop.
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
  /// Whether the others continue when a rank fails.
  bool goes_on() const;
  /// Whether a failed rank is no failure of the job, because the others have continued without it.
  bool tolerates_failures() const;
  // `how` is said at once; "" for nothing.
  void fail(const std::string& who, const std::string& how, const Ending& ending, const RankOutput& output);
  void check_clock();
  void check_output();

  // A job over several hosts: the launcher that was started by hand, and those of the hosts.
  void start_hosts();
  bool wants_records() const;
  void read_records(HostLink& link);
  void on_record(HostLink& link, const Record& record);
  void on_link_end(std::size_t host, int status);
  void signal_hosts(int signal, bool whole_group);
  void read_orders();
  void on_order(const Order& order);
  void tell_ended(Rank rank, int status);

  // Endings, from gentle to final.
  void signal_ranks(int signal, bool whole_group);
  bool just_told() const;
  void stop();
  void kill_after(double grace);
  void kill_now();
  std::vector<pid_t> leftovers() const;
  void sweep();
  void stop_leftovers();
  void kill_leftovers();

  // Words.
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
  std::vector<pid_t> spared_;  // children from before the job, such as a shell's >(tee log)
  Takeover& takeover_;
  std::vector<Fd> logs_;
  Guard guard_;
  Sink out_sink_, err_sink_;
  Sink* err_;  // out_sink_ where both are the same file, so that lines stay whole
  bool shares_group_;
  Pipe notices_;  // of our own ranks; they inherit its write end
  bool continues_;
  Fd deaths_;  // an epoll of pidfds: it hands them out in the order in which they died
  std::vector<Member> members_;
  std::vector<HostLink> links_;  // none where the ranks are our own children
  std::vector<Child> children_;  // members_' or links_'
  Rank living_ = 0;              // ranks
  std::size_t running_ = 0;      // children
  bool takes_orders_ = false;
  LineSplitter orders_;

  bool sweeping_ = false, finished_ = false;
  bool stopping_ = false, killed_ = false, timed_out_ = false, broken_pipe_ = false;
  bool interrupted_ = false, second_interrupt_ = false;  // by SIGINT
  int told_to_end_ = 0;                                  // the last signal of that kind that was passed on
  Clock::time_point told_at_{};
  std::vector<Failure> failures_;  // on their own account, in order
  std::vector<pid_t> stopped_;     // leftovers that were sent SIGTERM
  Deadline timeout_at_, kill_at_, give_up_at_;
  double grace_ = 0;  // that ends at kill_at_
};

}  // namespace starling::launch
