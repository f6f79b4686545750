// Covers starling/fabric/mpi.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/harness.h"
#include "starling/base/error.h"
#include "starling/fabric/plugin.h"

// Tests that are specific to the fabric mpi; tests/mpi says how to run them.

namespace starling::fabric {
namespace {

class MpiTest : public testing::TestWithParam<Launch> {
 protected:
  void run(const RankBody& body) const {
    const auto ends = GetParam().launcher->run(GetParam().size, body);
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
};

// Sends a word to the next rank and receives one from the previous.
void pass_on(Fabric& fabric) {
  const Rank left = (fabric.rank() + fabric.size() - 1) % fabric.size();
  fabric.post(fabric.reserve(8), {}, (fabric.rank() + 1) % fabric.size());
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (std::uint32_t wake_count = fabric.wake_count(); !fabric.poll(left); wake_count = fabric.wake_count()) {
    if (std::chrono::steady_clock::now() > deadline) throw Error("nothing comes");
    fabric.sleep(wake_count, {&left, 1}, deadline);
  }
}

TEST_P(MpiTest, AForkedChildThatExitsDoesNotAffectTheRank) {
  run([](const std::shared_ptr<Fabric>& fabric) {
    pass_on(*fabric);
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error("the child did not end well");
    pass_on(*fabric);
  });
}

// The fabric leaves at the end of the process, and does not keep the process from ending.
TEST_P(MpiTest, AFabricThatIsNeverDestroyedLeavesAtExit) {
  run([](const std::shared_ptr<Fabric>& fabric) {
    pass_on(*fabric);
    new std::shared_ptr<Fabric>(fabric);
  });
}

TEST_P(MpiTest, RejectsARankThatContradictsMpi) {
  run([](const std::shared_ptr<Fabric>& fabric) {
    FabricRequest request;
    request.rank = fabric->rank() + 1;
    request.size = fabric->size();
    try {
      load_fabric("mpi").join(request);
    } catch (const InvalidArgument& error) {
      if (std::string(error.what()).find("MPI says that this is rank") != std::string::npos) return;
      throw;
    }
    throw Error("joined with a wrong rank");
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MpiTest);
INSTANTIATE_TEST_SUITE_P(Fabrics, MpiTest, testing::ValuesIn([] {
                           auto all = launches({2, 3}, true);
                           std::erase_if(all, [](const Launch& one) { return one.launcher->name != "mpi"; });
                           return all;
                         }()),
                         launch_name);

}  // namespace
}  // namespace starling::fabric
