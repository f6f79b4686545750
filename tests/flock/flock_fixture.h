#pragma once

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "fabric/harness.h"
#include "starling/flock/flock.h"

namespace starling::flock {

using namespace std::chrono_literals;
using FlockBody = std::function<void(Flock& flock)>;

/// Ranks may run in other processes, so they report failed expectations by exceptions.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

/// Returns the message of the E that `body` must throw.
template <typename E>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  throw Error("expected an error, and nothing was thrown");
}

/// Runs a body on every rank of a flock. Each test file derives its suites from this class.
class FlockTest : public testing::TestWithParam<Launch> {
 protected:
  std::vector<RankEnd> ends_of(const FlockBody& body) const {
    return GetParam().launcher->run(GetParam().size, [body](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      flock.set_timeout(40s);
      body(flock);
    });
  }
  void run(const FlockBody& body) const {
    const auto ends = ends_of(body);
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
};

}  // namespace starling::flock
