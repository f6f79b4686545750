#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::tool {

/// What training processes want of their environment: a fair number of threads, and a malloc that keeps
/// memory for the next step's tensors instead of giving it back to the kernel (which made LeNet's steps 1.4
/// times as long, now and then).
std::vector<std::string> training_environment(int threads);

/// The processes of one job that are told what to do and answer, a line at a time. Gone with this object.
class WorkerGroup {
 public:
  /// Starts `ranks` times the program `words` (the first is a path), as `starling run` would, on `cpus`.
  /// `environment` are NAME=VALUE. What they write on standard error is ours.
  WorkerGroup(const std::string& name, const std::vector<std::string>& words, Rank ranks,
              const std::vector<int>& cpus, const std::vector<std::string>& environment);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  /// Sends a line to all.
  void tell(const std::string& line);
  /// One line of every rank. Throws Error when one ends or says "cannot REASON", or when the time is over.
  std::vector<std::string> answers(std::chrono::seconds limit);
  /// The next line of one rank; nothing when it has ended, and written all it had to say.
  std::optional<std::string> line_of(Rank rank, std::chrono::seconds limit);
  /// Waits for all to end; throws Error when one of them failed.
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
