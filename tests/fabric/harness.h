#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling {

/// What a rank of a test does; it fails by throwing.
using RankBody = std::function<void(const std::shared_ptr<Fabric>& fabric)>;

/// How a rank of a test ended.
struct RankEnd {
  bool ok = false;
  int signal = 0;       // a process that was killed
  std::string message;  // what it threw
};

/// A way to start ranks that conformance tests run against: on the local fabric, or on the one that
/// STARLING_TEST_FABRIC names.
struct Launcher {
  std::string name;
  bool processes = false;  // ranks can be killed and stopped
  bool shares = true;      // memory: windows, and what a rank posted just before it was killed is there
  std::function<std::vector<RankEnd>(Rank size, const RankBody& body)> run{};
  Rank most = 1000;  // ranks
  /// With processes that come later, numbered after the members: each calls `before`, then waits to be let
  /// in. None where there is no door.
  std::function<std::vector<RankEnd>(Rank members, Rank newcomers, const std::function<void(Rank)>& before,
                                     const RankBody& body)>
      run_with_newcomers{};
};

const std::vector<Launcher>& launchers();

/// A process that stands still until this is dropped.
class Stopped {
 public:
  explicit Stopped(pid_t process);
  ~Stopped();
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  pid_t process_;
};

/// A launcher and a number of ranks: what parameterised suites run with.
struct Launch {
  const Launcher* launcher;
  Rank size;
};

/// Every launcher, or only those that start processes, with every size.
std::vector<Launch> launches(const std::vector<Rank>& sizes, bool only_processes);
/// Those with newcomers.
std::vector<Launch> launches_with_newcomers(Rank size);
std::string launch_name(const testing::TestParamInfo<Launch>& test);

}  // namespace starling
