#pragma once

#include <functional>
#include <mpi.h>
#include <thread>
#include <vector>

#include "starling/base/types.h"

namespace starling::fabric::mpi_engine {

/// A thread that notices when processes of this host end, which messages through shared memory would never
/// show.
class ProcessWatch {
 public:
  using Ended = std::function<void(Rank rank)>;

  /// Collective: all ranks of the communicator construct one.
  explicit ProcessWatch(MPI_Comm comm);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

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

}  // namespace starling::fabric::mpi_engine
