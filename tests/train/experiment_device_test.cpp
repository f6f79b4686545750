#include "starling/train/experiment_device.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include "starling/train/experiment.h"
#include "train/trained.h"

namespace starling::train {
namespace {

TEST(ExperimentDevice, NamesAreCheckedWithoutADriver) {
  for (const char* name : {"auto", "cpu", "cuda", "cuda:0", "cuda:15"})
    EXPECT_NO_THROW(check_device(name)) << name;
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:0:1", "cuda:99999"})
    EXPECT_THROW(check_device(name), InvalidArgument) << name;
}

TEST(ExperimentDevice, WithoutAGpuAutoIsTheCpuAndCudaIsRefused) {
  EXPECT_EQ(find_device("cpu", 3), torch::Device(torch::kCPU));
  if (torch::cuda::device_count() > 0) GTEST_SKIP() << "there is a GPU here";
  EXPECT_EQ(find_device("auto", 0), torch::Device(torch::kCPU));
  try {
    find_device("cuda:1", 0);
    FAIL() << "there is no such GPU";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("sees no GPU"), std::string::npos) << error.what();
  }
}

/// The reports of rank 0, on a simulated device or on the host.
std::vector<RunReport> reports_of(const Experiment& experiment, bool on_device) {
  std::vector<RunReport> reports;
  std::optional<RunEnd> end;
  const auto& launchers_there = on_device ? inline_device_launchers() : launchers();
  pretend_tensors_are_on_device(on_device);
  const auto ends = launchers_there[0].run(2, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(60s);
    run_experiment(flock, experiment, [&](const RunEvent& event) {
      if (flock.rank() != 0) return;
      if (const auto* report = std::get_if<RunReport>(&event)) reports.push_back(*report);
      if (const auto* last = std::get_if<RunEnd>(&event)) end = *last;
    });
  });
  pretend_tensors_are_on_device(false);
  for (const RankEnd& one : ends) EXPECT_TRUE(one.ok) << one.message;
  EXPECT_TRUE(end && !end->diverged);
  return reports;
}

TEST(ExperimentDevice, ReportsTheSameAsTheHost) {
  Experiment experiment;
  experiment.data = "synthetic(train=400,test=100)";
  experiment.model = "mlp(width=16)";
  experiment.epochs = 2;
  experiment.reports = 3;
  const auto host = reports_of(experiment, false);
  const auto device = reports_of(experiment, true);
  ASSERT_EQ(device.size(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_EQ(device[i].step, host[i].step);
    EXPECT_EQ(device[i].loss, host[i].loss) << "report " << i;
    EXPECT_EQ(device[i].test_accuracy, host[i].test_accuracy) << "report " << i;
    EXPECT_EQ(device[i].consensus_distance, host[i].consensus_distance) << "report " << i;
  }
}

TEST(ExperimentDevice, ADivergedRunNamesItsStep) {
  Experiment experiment;
  experiment.data = "synthetic(train=400,test=100)";
  experiment.model = "mlp(width=16)";
  experiment.optimizer = "sgd(lr=1e6)";
  experiment.reports = 2;
  std::optional<RunDivergence> diverged;
  pretend_tensors_are_on_device(true);
  const auto ends = inline_device_launchers()[0].run(2, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(60s);
    run_experiment(flock, experiment, [&](const RunEvent& event) {
      const auto* end = std::get_if<RunEnd>(&event);
      if (flock.rank() == 0 && end != nullptr) diverged = end->diverged;
    });
  });
  pretend_tensors_are_on_device(false);
  for (const RankEnd& one : ends) EXPECT_TRUE(one.ok) << one.message;
  ASSERT_TRUE(diverged.has_value());
  EXPECT_GT(diverged->step, 1);
  EXPECT_LT(diverged->step, 7) << "the step of the loss, not of the report";
}

}  // namespace
}  // namespace starling::train
