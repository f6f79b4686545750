#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/base/error.h"
#include "starling/fabric/fabric.h"

namespace starling::fabric {

/// In a rank, where an assertion of GoogleTest would be lost.
inline void demand(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

/// The body of a rank in a test; it fails by throwing.
using RankBody = std::function<void(const std::shared_ptr<Fabric>& fabric)>;

/// How a rank of a test ended.
struct RankEnd {
  bool ok = false;
  int signal = 0;       // the signal that killed the process
  std::string message;  // of the exception that the rank threw
};

/// Starts the ranks of a test, on the local fabric or on the one that STARLING_TEST_FABRIC names.
struct Launcher {
  std::string name;
  bool processes = false;  // each rank is a process, which can be killed and stopped
  bool shares = true;      // ranks share memory: messages posted just before a rank was killed arrive
  std::function<std::vector<RankEnd>(Rank size, const RankBody& body)> run{};
  Rank most = 1000;  // the largest supported number of ranks
  /// Starts members and newcomers, numbered after them: each newcomer calls `before`, then waits for its
  /// admission. Unset if the fabric admits no newcomers.
  std::function<std::vector<RankEnd>(Rank members, Rank newcomers, const std::function<void(Rank)>& before,
                                     const RankBody& body)>
      run_with_newcomers{};
};

const std::vector<Launcher>& launchers();

/// Launchers of threads and processes over the local fabric, with device messages: in the memory of a
/// FakeDevice with random delays or, with STARLING_TEST_DEVICE=cuda, of a GPU. Each rank's thread has a
/// stream of its own.
const std::vector<Launcher>& device_launchers();
/// The same without delays: work on the device is finished when a call returns, so code that does not know
/// the FakeDevice, such as torch on the CPU, can use the same memory.
const std::vector<Launcher>& inline_device_launchers();

/// Stops a process (SIGSTOP) and resumes it on destruction.
class Stopped {
 public:
  explicit Stopped(pid_t process);
  ~Stopped();
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  pid_t process_;
};

/// The parameter of suites: a launcher and a number of ranks.
struct Launch {
  const Launcher* launcher;
  Rank size;
};

/// Every launcher, or only those that start processes, with every size.
std::vector<Launch> launches(const std::vector<Rank>& sizes, bool only_processes);
std::vector<Launch> device_launches(const std::vector<Rank>& sizes);
/// Launchers that support newcomers.
std::vector<Launch> launches_with_newcomers(Rank size);
std::string launch_name(const testing::TestParamInfo<Launch>& test);

}  // namespace starling::fabric
