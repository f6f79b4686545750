#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/launch/cpus.h"
#include "starling/method/registry.h"
#include "starling/topology/registry.h"
#include "starling/version.h"
#include "tool/machine.h"
#include "tool/tool_runner.h"

namespace starling {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using tool::better_blas_core;

TEST(InfoCommand, SaysWhatThereIs) {
  const Folder folder;
  const char* set = std::getenv("STARLING_DATA");
  const std::string before = set == nullptr ? "" : set;
  setenv("STARLING_DATA", folder.path("").c_str(), 1);
  const json info = run_tool({"info", "--json"}).json();
  EXPECT_EQ(info.at("starling"), STARLING_VERSION);
  EXPECT_EQ(info.at("cores"), launch::allowed_cpus().size());
  EXPECT_GT(info.at("memory"), 1e8);
  EXPECT_GT(info.at("shared_memory"), 0);
  EXPECT_EQ(info.at("topologies"), topology_families().size());
  EXPECT_EQ(info.at("methods"), method_families().size());
  EXPECT_EQ(info.at("torch").is_null(), info.at("models").is_null());
  EXPECT_EQ(info.at("data")[0].at("name"), "mnist");
  EXPECT_EQ(info.at("data")[0].at("here"), false);
  EXPECT_THAT(info.at("data")[0].at("folder"), HasSubstr(folder.path("mnist")));
  const ToolRun words = run_tool({"info"});
  before.empty() ? unsetenv("STARLING_DATA") : setenv("STARLING_DATA", before.c_str(), 1);
  EXPECT_EQ(words.status, 0) << words.err;
  for (const char* row : {"build", "kernels", "/dev/shm", "torch", "fabric local", "fabric c10d",
                          "interfaces", "mpirun", "not in "})
    EXPECT_THAT(words.out, HasSubstr(row));
}

// OpenBLAS takes its oldest kernels for a processor that it does not know; this one has the name in its
// environment.
TEST(InfoCommand, SaysWhenOpenBlasIsSlow) {
  setenv("OPENBLAS_CORETYPE", "Prescott", 1);
  const json info = run_tool({"info", "--json"}).json();
  const ToolRun words = run_tool({"info"});
  setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  const ToolRun good = run_tool({"info"});
  unsetenv("OPENBLAS_CORETYPE");
  if (info.at("blas_core").is_null()) GTEST_SKIP() << "torch is not here, or does not use OpenBLAS";
  EXPECT_EQ(info.at("blas_core"), "Prescott");
  if (better_blas_core("Prescott").empty()) GTEST_SKIP() << "this processor has nothing better";
  EXPECT_THAT(words.out, HasSubstr("OPENBLAS_CORETYPE=" + better_blas_core("Prescott")));
  EXPECT_THAT(good.out, HasSubstr("OpenBLAS for Haswell"));
  EXPECT_THAT(good.out, Not(HasSubstr("OPENBLAS_CORETYPE")));
}

}  // namespace
}  // namespace starling
