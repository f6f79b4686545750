#include "starling/flock/launch_info.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "starling/base/error.h"
#include "starling/fabric/plugin.h"

namespace starling::flock {
namespace {

using testing::HasSubstr;

/// Unsets the variables of all launchers while a test runs; the test sets what it needs.
class LaunchInfoTest : public testing::Test {
 protected:
  LaunchInfoTest() {
    for (const char* name : {"STARLING_RANK",
                             "STARLING_SIZE",
                             "STARLING_JOB",
                             "STARLING_FABRIC",
                             "RANK",
                             "WORLD_SIZE",
                             "MASTER_PORT",
                             "LOCAL_WORLD_SIZE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMIX_NAMESPACE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "SLURM_NNODES",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "MPI_LOCALNRANKS"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
      names_.push_back(name);
    }
  }
  ~LaunchInfoTest() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

  static void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  static std::string chosen() { return text(choose_fabric(find_launch_info().value())); }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::string> before_;
};

TEST_F(LaunchInfoTest, AProcessStartedAloneHasNoLauncher) {
  EXPECT_FALSE(find_launch_info());
}

TEST_F(LaunchInfoTest, TheFirstLauncherCounts) {
  set({{"RANK", "5"}, {"WORLD_SIZE", "6"}, {"MASTER_PORT", "1"}, {"LOCAL_WORLD_SIZE", "6"}});
  EXPECT_EQ(find_launch_info()->launcher, "torchrun");
  set({{"SLURM_PROCID", "4"}, {"SLURM_NTASKS", "6"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "2"}});
  EXPECT_EQ(find_launch_info()->launcher, "srun");
  EXPECT_EQ(find_launch_info()->job, "7.2");
  set({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "6"}, {"PMIX_NAMESPACE", "x"}});
  EXPECT_EQ(find_launch_info()->launcher, "mpirun");
  set({{"STARLING_RANK", "2"}, {"STARLING_SIZE", "6"}, {"STARLING_JOB", "j"}});
  EXPECT_EQ(find_launch_info()->launcher, "starling run");
  EXPECT_EQ(find_launch_info()->rank, 2);
  EXPECT_EQ(chosen(), "local");
}

TEST_F(LaunchInfoTest, SeveralHostsTakeTheFabricOfTheirLauncher) {
  set({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1"}, {"LOCAL_WORLD_SIZE", "4"}});
  EXPECT_EQ(chosen(), "local");
  set({{"LOCAL_WORLD_SIZE", "2"}});
  EXPECT_EQ(chosen(), "hybrid(c10d)");
  set({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "1"}});
  EXPECT_EQ(chosen(), "local");
  set({{"SLURM_NNODES", "2"}});
  EXPECT_EQ(chosen(), "hybrid(mpi)");
  set({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "x"}});
  set({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(chosen(), "local");
  set({{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(chosen(), "hybrid(mpi)");
}

TEST_F(LaunchInfoTest, TheChosenFabricWins) {
  set({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1"}, {"LOCAL_WORLD_SIZE", "2"}});
  set({{"STARLING_FABRIC", "local"}});
  EXPECT_EQ(chosen(), "local");
  set({{"STARLING_FABRIC", "c10d"}});
  EXPECT_EQ(chosen(), "c10d");
  set({{"STARLING_FABRIC", "hybrid(mpi)"}});
  EXPECT_EQ(chosen(), "hybrid(mpi)");
  set({{"STARLING_FABRIC", "hybrid"}});
  EXPECT_EQ(chosen(), "hybrid(c10d)");
  set({{"STARLING_FABRIC", "pigeons"}});
  try {
    chosen();
    FAIL() << "no error was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("STARLING_FABRIC: unknown fabric 'pigeons'; valid are local, c10d, hybrid, hybrid(c10d)"));
  }
}

// A fabric's requirements come from its registration, not from its name.
TEST_F(LaunchInfoTest, AFabricOfTheProgramIsChosenLikeTheOthers) {
  static const FabricPlugin plugin = {nullptr, nullptr};
  register_fabric({.name = "own-network", .summary = "", .plugin = &plugin});
  register_fabric({.name = "own-memory", .summary = "", .plugin = &plugin, .needs_job = true});
  set({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}});
  set({{"STARLING_FABRIC", "own-network"}});
  EXPECT_EQ(chosen(), "own-network");
  set({{"STARLING_FABRIC", "own-memory"}});
  EXPECT_THROW(chosen(), InvalidArgument);  // no job
  set({{"STARLING_JOB", "mine"}});
  EXPECT_EQ(chosen(), "own-memory");
  set({{"STARLING_FABRIC", "hybrid(own-network)"}});
  EXPECT_EQ(chosen(), "hybrid(own-network)");
}

TEST_F(LaunchInfoTest, MpichNamesNoJob) {
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}});
  set({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  EXPECT_EQ(find_launch_info()->launcher, "srun");  // srun also uses PMI
  set({{"MPI_LOCALNRANKS", "4"}});
  EXPECT_EQ(find_launch_info()->launcher, "mpiexec");
  EXPECT_EQ(find_launch_info()->rank, 3);
  EXPECT_EQ(chosen(), "mpi");
  set({{"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(chosen(), "mpi");
  set({{"STARLING_FABRIC", "hybrid"}});
  EXPECT_THROW(chosen(), InvalidArgument);
  set({{"STARLING_JOB", "mine"}});
  EXPECT_EQ(chosen(), "hybrid(mpi)");
  set({{"STARLING_FABRIC", ""}, {"MPI_LOCALNRANKS", "4"}});
  EXPECT_EQ(chosen(), "local");
}

TEST(FabricPlugins, UnknownFabricsAreNotMistakenForBuiltInOnes) {
  for (const char* name : {"pigeons", "local", "hybrid"})
    EXPECT_THROW(load_fabric(name), InvalidArgument) << name;
}

}  // namespace
}  // namespace starling::flock
