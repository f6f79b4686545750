#pragma once

#include <mpi.h>
#include <mutex>
#include <set>
#include <string>

#include "starling/base/types.h"

// The state of MPI in this process.

namespace starling::fabric::mpi_engine {

/// An object that uses MPI and must stop before the process ends.
class EngineUser {
 public:
  virtual ~EngineUser() = default;
  /// The process ends: tells the peers and stops using MPI.
  virtual void depart() noexcept = 0;
};

/// MPI in this process. The first user initializes it, unless the program has; Starling finalizes it at exit
/// only if it has initialized it. Thread-safe.
class Engine {
 public:
  /// Initializes MPI if needed. Throws Error if it was finalized, or initialized with too low a thread level.
  static Engine& get();

  /// Whether several threads may call MPI at once. If not, every call must hold call_lock().
  bool concurrent() const { return concurrent_; }
  std::unique_lock<std::mutex> call_lock();

  void add(EngineUser& user);
  void remove(EngineUser& user);

 private:
  Engine();
  static void at_exit();
  void finish();

  bool concurrent_ = false;
  bool started_here_ = false;
  int forks_;
  std::mutex call_mutex_;
  std::mutex users_mutex_;
  std::set<EngineUser*> users_;
};

/// Name and version of the library.
std::string library_text();

/// Throws Error unless `code` is MPI_SUCCESS.
void check(int code, const char* what);
std::string error_text(int code);

/// MPI cannot continue without a rank: prints why and aborts the whole job.
[[noreturn]] void end_job(Rank me, Rank lost, const std::string& why);

}  // namespace starling::fabric::mpi_engine
