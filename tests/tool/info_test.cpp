#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>

#include "kernel/fake_device.h"
#include "starling/base/environment.h"
#include "starling/base/json.h"
#include "starling/launch/cpus.h"
#include "starling/method/registry.h"
#include "starling/topology/registry.h"
#include "starling/version.h"
#include "tool/gpus.h"
#include "tool/machine.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using tool::better_blas_core;

TEST(InfoCommand, DescribesBuildAndMachine) {
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

TEST(InfoCommand, SaysWhyThereIsNoGpu) {
  const Gpus here = look_for_gpus();
  if (here.problem.empty()) GTEST_SKIP() << "there is a GPU";
  const json info = run_tool({"info", "--json"}).json();
  EXPECT_EQ(info.at("cuda"), nullptr);
  EXPECT_EQ(info.at("gpus"), json::array());
  EXPECT_EQ(info.at("no_gpu_because"), here.problem);
  EXPECT_THAT(run_tool({"info"}).out, HasSubstr("none: "));
}

TEST(InfoCommand, DescribesGpus) {
  kernel::set_device(std::make_shared<kernel::FakeDevice>(
      kernel::FakeDeviceOptions{.memory = std::size_t{3} << 30, .devices = 3}));
  const kernel::Device::SharedMemory used = kernel::device().create_shared(std::size_t{1} << 30);
  const Gpus gpus = look_for_gpus();
  kernel::device().release_shared(used.address, used.bytes);
  kernel::set_device(nullptr);
  const auto rows = rows_of(gpus);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0], (std::pair<std::string, std::string>("cuda", "fake")));
  EXPECT_EQ(rows[2], (std::pair<std::string, std::string>(
                         "gpu 1", "fake, 3.22 GB, 2.15 GB of it free; maps the memory of GPU 0, 2")));
  std::ostringstream text;
  {
    JsonWriter writer(text);
    writer.begin_object();
    write_gpus(writer, gpus);
    writer.end_object();
  }
  const json info = json::parse(text.str());
  EXPECT_EQ(info.at("cuda"), "fake");
  EXPECT_EQ(info.at("no_gpu_because"), nullptr);
  ASSERT_EQ(info.at("gpus").size(), 3U);
  EXPECT_EQ(info.at("gpus")[1].at("memory"), std::size_t{3} << 30);
  EXPECT_EQ(info.at("gpus")[1].at("memory_free"), std::size_t{2} << 30);
  EXPECT_EQ(info.at("gpus")[1].at("peers"), "0, 2");
}

// OpenBLAS uses its oldest kernels on a processor that it does not know; here the environment names such a
// processor.
TEST(InfoCommand, WarnsOfASlowOpenBlas) {
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

TEST(InfoCommand, VariablesEqualTheDocumentationPage) {
  const ToolRun page = run_tool({"info", "--variables"});
  EXPECT_EQ(page.status, 0) << page.err;
  EXPECT_EQ(page.out, read_file(std::string(STARLING_DOCS) + "/environment.md"))
      << "write it again: starling info --variables > docs/environment.md";
  const auto list = run_tool({"info", "--variables", "--json"}).json();
  EXPECT_EQ(list.size(), environment_variables().size());
  EXPECT_EQ(list.front().at("name"), "STARLING_FABRIC");
}

// Every STARLING_... name in the sources, in a text or as a variable, is declared once.
TEST(InfoCommand, EveryVariableOfTheSourcesIsDeclared) {
  std::set<std::string> declared;
  for (const EnvironmentVariable& variable : environment_variables()) declared.insert(variable.name);
  const std::filesystem::path root = std::filesystem::path(STARLING_DOCS).parent_path();
  const std::regex name("\"(STARLING_[A-Z_]+)[=\" ]");
  std::size_t seen = 0;
  for (const char* folder : {"starling", "tool", "python/starling"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h" && extension != ".py") continue;
      const std::string text = read_file(entry.path().string());
      for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it, ++seen)
        EXPECT_TRUE(declared.contains((*it)[1].str())) << (*it)[1] << " in " << entry.path();
    }
  EXPECT_GT(seen, 5);
}

TEST(InfoCommand, TheEnvironmentIsReadInOnePlace) {
  const std::filesystem::path root = std::filesystem::path(STARLING_DOCS).parent_path();
  const std::filesystem::path reader = root / "starling/base/environment.cpp";
  for (const char* folder : {"starling", "tool"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const auto extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h") continue;
      const bool reads = read_file(entry.path().string()).find("getenv(") != std::string::npos;
      EXPECT_EQ(reads, entry.path() == reader) << entry.path() << ": declare it in environment.inc";
    }
}

}  // namespace
}  // namespace starling::tool
