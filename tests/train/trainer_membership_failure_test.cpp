#include <atomic>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "train/trained.h"

// One of four worker processes is killed in the middle of an epoch.
namespace starling::train {
namespace {

constexpr Rank kVictim = 2;
constexpr Step kDeathSteps = 60;
constexpr Step kLast = 25;  // the step in which the victim dies

// The survivors' report to the test, in plain memory that the processes share.
struct Report {
  std::atomic<double> accuracy{0};
  std::atomic<int> finished{0};
};

class SharedReport {
 public:
  SharedReport()
      : report_(new (mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                    Report) {}
  ~SharedReport() { munmap(report_, sizeof(Report)); }
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;
  Report* operator->() const { return report_; }

 private:
  Report* report_;
};

// The task is to find which of three directions is closest to a point. Every rank can learn it; their data
// are distributed differently.
struct Points {
  torch::Tensor x, label;
};
Points points(std::int64_t seed, std::int64_t count) {
  const torch::Tensor x = scattered({count, 5}, seed, torch::kFloat32) * 2;
  const torch::Tensor directions = scattered({5, 3}, 4711, torch::kFloat32);
  return {x, x.matmul(directions).argmax(1)};
}

// Ranks that start with different models agree on one.
void work_after_an_early_death(Flock& flock, Rank victim, SharedReport& report) {
  const NetworkPtr network = make_network("mlp", flock.rank(), torch::kFloat32);
  torch::optim::SGD sgd(network->parameters(), torch::optim::SGDOptions(0.2));
  if (flock.rank() == victim) raise(SIGKILL);
  Trainer trainer(flock, *network, sgd, {.topology = "complete", .on_peer_failure = "reweight"});
  require(trainer.consensus_distance() == 0, "the models differ at the start");
  for (Step t = 0; t < 5; ++t) {
    trainer.zero_grad();
    const Points batch = points(1000 * t + flock.rank(), 32);
    torch::cross_entropy_loss(network->forward(batch.x), batch.label).backward();
    trainer.step();
  }
  ++report->finished;
}

void work(Flock& flock, const TrainerOptions& options, bool with_death, SharedReport& report) {
  const NetworkPtr network = make_network("mlp", flock.rank(), torch::kFloat32);
  torch::optim::SGD sgd(network->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  Trainer trainer(flock, *network, sgd, options);
  trainer.begin_epoch(kDeathSteps);
  for (Step t = 0; t < kDeathSteps; ++t) {
    trainer.zero_grad();
    const Points batch = points(1000 * t + flock.rank(), 32);
    torch::cross_entropy_loss(network->forward(batch.x), batch.label).backward();
    if (with_death && t == kLast && flock.rank() == kVictim) raise(SIGKILL);
    trainer.step();
  }
  trainer.finish_epoch();
  const auto averaged = trainer.global_average();
  const torch::NoGradGuard no_grad;
  const Points test = points(-5, 2000);
  report->accuracy =
      (network->forward(test.x).argmax(1) == test.label).to(torch::kFloat64).mean().item<double>();
  ++report->finished;
}

class TrainerMembershipFailureTest : public testing::TestWithParam<const char*> {};

TEST_P(TrainerMembershipFailureTest, ADeathEndsAllRanksAndIsNamed) {
  SharedReport report;
  const auto ends =
      ends_on("local_processes", 4, [&](Flock& flock) { work(flock, {.method = GetParam()}, true, report); });
  for (Rank r = 0; r < 4; ++r) {
    const RankEnd& end = ends[static_cast<std::size_t>(r)];
    if (r == kVictim) {
      EXPECT_EQ(end.signal, SIGKILL);
    } else {
      EXPECT_FALSE(end.ok);
      EXPECT_THAT(end.message, testing::HasSubstr("rank 2")) << "rank " << r;
      EXPECT_THAT(end.message, testing::Not(testing::HasSubstr("timeout"))) << "rank " << r;
    }
  }
  EXPECT_EQ(report->finished, 0);
}

TEST_P(TrainerMembershipFailureTest, WithReweightTheSurvivorsReachTheSameAccuracy) {
  SharedReport undisturbed, report;
  const auto train_all = [&](bool with_death, SharedReport& to) {
    return ends_on("local_processes", 4, [&](Flock& flock) {
      work(flock, {.method = GetParam(), .on_peer_failure = "reweight"}, with_death, to);
    });
  };
  for (const RankEnd& end : train_all(false, undisturbed)) EXPECT_TRUE(end.ok) << end.message;
  const auto ends = train_all(true, report);
  for (Rank r = 0; r < 4; ++r) {
    const RankEnd& end = ends[static_cast<std::size_t>(r)];
    EXPECT_EQ(end.ok, r != kVictim) << "rank " << r << ": " << end.message;
  }
  EXPECT_EQ(report->finished, 3);
  EXPECT_GT(undisturbed->accuracy, 0.9);
  EXPECT_GT(report->accuracy, undisturbed->accuracy - 0.02);
}

TEST(TrainerEarlyDeathTest, WithReweightARankMayDieBeforeItsTrainerIsMade) {
  for (const Rank victim : {0, 2}) {
    SharedReport report;
    const auto ends = ends_on("local_processes", 4,
                              [&](Flock& flock) { work_after_an_early_death(flock, victim, report); });
    for (Rank r = 0; r < 4; ++r) {
      const RankEnd& end = ends[static_cast<std::size_t>(r)];
      EXPECT_EQ(end.ok, r != victim) << "rank " << r << ": " << end.message;
    }
    EXPECT_EQ(report->finished, 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, TrainerMembershipFailureTest,
                         testing::Values("dsgd-awc", "dsgd-atc", "allreduce", "gradient-tracking"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace starling::train
