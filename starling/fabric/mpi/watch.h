#pragma once

#include <functional>
#include <mpi.h>
#include <thread>
#include <vector>

#include "starling/base/types.h"

namespace starling::mpi_engine {

/// Sees processes of this host end: messages through shared memory would never tell.
class Watch {
 public:
  using Ended = std::function<void(Rank rank)>;

  /// All of the communicator call it.
  explicit Watch(MPI_Comm comm);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// `ended` is called on a thread of its own.
  void start(Ended ended);
  void stop();

 private:
  struct Process {
    Rank rank;
    int fd;
  };
  void run();

  std::vector<Process> processes_;
  int stop_fd_ = -1;
  Ended ended_;
  std::thread thread_;
};

}  // namespace starling::mpi_engine
