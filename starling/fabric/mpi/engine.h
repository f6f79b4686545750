#pragma once

#include <mpi.h>
#include <mutex>
#include <set>
#include <string>

#include "starling/base/types.h"

// What of MPI there is once in a process.

namespace starling::mpi_engine {

/// Somebody who uses MPI until the process ends at the latest.
class User {
 public:
  virtual ~User() = default;
  /// The process ends: others hear of it, and MPI is used no more.
  virtual void depart() noexcept = 0;
};

/// MPI in this process: started by whoever comes first, and ended with the process by who started it.
class Engine {
 public:
  /// Starts MPI where nobody has. Throws where it has been ended, or was started for fewer threads.
  static Engine& get();

  /// Whether several threads may call MPI at once. Where not, each takes its turn.
  bool concurrent() const { return concurrent_; }
  std::unique_lock<std::mutex> turn();

  void add(User& user);
  void remove(User& user);

 private:
  Engine();
  static void at_exit();
  void finish();

  bool concurrent_ = false;
  bool started_here_ = false;
  int forks_;
  std::mutex turn_;
  std::mutex users_mutex_;
  std::set<User*> users_;
};

/// Name and version of the library.
std::string library_text();

/// Throws Error unless MPI says that it went well.
void check(int code, const char* what);
std::string error_text(int code);

/// MPI cannot go on without a rank: says so and ends the whole job.
[[noreturn]] void end_job(Rank me, Rank lost, const std::string& why);

}  // namespace starling::mpi_engine
