#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::tool {

/// Environment variables for training processes: a fair number of threads, and a malloc that keeps memory for
/// the next step's tensors instead of returning it to the kernel (which at times made LeNet's steps 1.4 times
/// as long).
std::vector<std::string> training_environment(int threads);

/// The processes of one job, which read commands and write answers, one line each. They end with this object.
class WorkerGroup {
 public:
  /// Starts `ranks` processes that run `words` (the first is a path), like `starling run`, on `cpus`.
  /// `environment` contains NAME=VALUE. They share our standard error.
  WorkerGroup(const std::string& name, const std::vector<std::string>& words, Rank ranks,
              const std::vector<int>& cpus, const std::vector<std::string>& environment);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  /// Sends a line to all.
  void tell(const std::string& line);
  /// Reads one line from every rank. Throws Error if a rank ends or answers "cannot REASON", or at the time
  /// limit.
  std::vector<std::string> answers(std::chrono::seconds limit);
  /// The next line of one rank; empty if the rank has ended and all its output was read.
  std::optional<std::string> line_of(Rank rank, std::chrono::seconds limit);
  /// Waits for all to end; throws Error if one failed.
  void finish(std::chrono::seconds limit);

 private:
  struct Worker {
    pid_t pid = -1;
    Descriptor input, output;
    std::string unread;
  };
  std::string name_;
  std::vector<Worker> workers_;
};

}  // namespace starling::tool
