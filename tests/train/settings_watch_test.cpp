#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/train/torch_optimizer.h"
#include "train/trained.h"

// Tests settings that ranks change during training.
namespace starling::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Trains; calls `between` before every step. Every rank has its own data unless the caller says otherwise.
void train_with(const Flock& flock, Step steps, const TrainerOptions& options,
                const std::function<void(torch::optim::SGD&, Step)>& between, bool same_data = false) {
  const NetworkPtr network = make_network("mlp");
  torch::optim::SGD sgd(network->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
  Trainer trainer(flock, *network, sgd, options);
  for (Step t = 0; t < steps; ++t) {
    between(sgd, t);
    train_step(trainer, *network, same_data ? 0 : flock.rank(), t);
  }
}

std::vector<std::string> errors_of(Rank size, const FlockBody& body,
                                   const std::string& launcher = "local_threads") {
  std::vector<std::string> all;
  for (const RankEnd& end : ends_on(launcher, size, body)) all.push_back(end.message);
  return all;
}

TEST(SettingsWatch, NamesALearningRateThatOneRankChangesOnAllRanks) {
  for (const char* method : {"dsgd-awc", "dsgd-atc", "allreduce", "local-sgd(tau=8)"})
    for (const std::string& error : errors_of(3, [&](Flock& flock) {
           train_with(flock, 100, {.method = method}, [&](torch::optim::SGD& sgd, Step t) {
             if (t == 5 && flock.rank() == 1) set_learning_rate(sgd, 0.01);
           });
         }))
      EXPECT_THAT(error, HasSubstr("do not train alike any more: the optimizer's lr: 0.1 on rank 0, 0.01 on "
                                   "rank 1 (step 8). Change settings on every rank"))
          << method;
}

TEST(SettingsWatch, NoticesMomentumChangedByHandWithEager) {
  for (const std::string& error : errors_of(4, [&](Flock& flock) {
         train_with(flock, 100, {.eager = true}, [&](torch::optim::SGD& sgd, Step t) {
           if (t == 20 && flock.rank() == 3)
             static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).momentum(0.9);
         });
       }))
    EXPECT_THAT(error, HasSubstr("the optimizer's momentum: 0.5 on rank 0, 0.9 on rank 3 (step 32)"));
}

// The settings are equal at the steps of the comparison, but not in between.
TEST(SettingsWatch, NoticesSchedulesThatAreOneStepApart) {
  for (const std::string& error : errors_of(2, [&](Flock& flock) {
         train_with(flock, 100, {}, [&](torch::optim::SGD& sgd, Step t) {
           if (t == 11 + flock.rank()) set_learning_rate(sgd, 0.01);
         });
       }))
    EXPECT_THAT(error, AllOf(HasSubstr("changed at different steps"),
                             HasSubstr("at step 11 on rank 0, at step 12 on rank 1")));
}

TEST(SettingsWatch, AcceptsSchedulesThatAllRanksFollow) {
  for (const char* method : {"dsgd-awc", "allreduce", "ad-psgd", "win-put"})
    on_ranks(4, [&](Flock& flock) {
      train_with(flock, 150, {.method = method, .topology = "ring"}, [](torch::optim::SGD& sgd, Step t) {
        set_learning_rate(sgd, 0.1 * (1 + std::cos(static_cast<double>(t))));
      });
    });
}

TEST(SettingsWatch, DoesNotComparePerRankSettings) {
  on_ranks(2, [&](Flock& flock) {
    train_with(flock, 40, {.per_rank_settings = true}, [&](torch::optim::SGD& sgd, Step t) {
      if (t == 5) set_learning_rate(sgd, 0.01 * (1 + flock.rank()));
    });
  });
}

// If the trainer does not make ranks equal at the start, the program does so after constructing the trainer
// and before the first step.
TEST(SettingsWatch, WithoutBroadcastComparesFromTheFirstStepOn) {
  const auto run = [](Flock& flock, bool broadcasts) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), flock.rank() == 0 ? 0.05 : 0.1);
    Trainer trainer(flock, *network, sgd, {.broadcast_at_start = false});
    if (broadcasts) trainer.broadcast_optimizer_state(0);
    for (Step t = 0; t < 5; ++t) train_step(trainer, *network, flock.rank(), t);
  };
  on_ranks(3, [&](Flock& flock) { run(flock, true); });
  for (const std::string& error : errors_of(3, [&](Flock& flock) { run(flock, false); }))
    EXPECT_THAT(error, HasSubstr("the optimizer's lr: 0.05 on rank 0, 0.1 on rank 1 (step 0)"));
}

// No rank waits for the dead one, and the others continue to compare.
TEST(SettingsWatch, ContinuesAfterADeath) {
  const auto ends = ends_on("local_processes", 4, [](Flock& flock) {
    train_with(flock, 200, {.on_peer_failure = "reweight"}, [&](torch::optim::SGD& sgd, Step t) {
      if (t == 15 && flock.rank() == 1) raise(SIGKILL);
      if (t == 100 && flock.rank() == 3) set_learning_rate(sgd, 0.01);
    });
  });
  for (const std::size_t survivor : {0, 2, 3})
    EXPECT_THAT(ends[survivor].message, HasSubstr("lr: 0.1 on rank 0, 0.01 on rank 3 (step 128)"));
}

// Asynchronous methods never wait, so the ranks that notice a difference only warn.
TEST(SettingsWatch, WarnsWithAsynchronousMethods) {
  testing::internal::CaptureStderr();
  on_ranks(2, [&](Flock& flock) {
    train_with(flock, 70, {.method = "ad-psgd", .topology = "ring"}, [&](torch::optim::SGD& sgd, Step t) {
      if (t % 8 == 0) flock.barrier("now and then");
      if (t == 5 && flock.rank() == 1) set_learning_rate(sgd, 0.01);
    });
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the optimizer's lr: 0.1 on rank 0, 0.01 on rank 1"));
}

TEST(SettingsWatch, WarnsOnceIfAllRanksTrainOnTheSameData) {
  const auto said = [](bool same, Rank size, const TrainerOptions& options) {
    testing::internal::CaptureStderr();
    on_ranks(size, [&](Flock& flock) {
      train_with(
          flock, 6, options, [](auto&, Step) {}, same);
    });
    const std::string text = testing::internal::GetCapturedStderr();
    const std::string about = "all ranks have computed the same first gradient";
    const std::size_t found = text.find(about);
    return found == std::string::npos ? 0 : text.find(about, found + 1) == std::string::npos ? 1 : 2;
  };
  for (const char* method : {"dsgd-awc", "allreduce", "gradient-tracking"})
    EXPECT_EQ(said(true, 4, {.method = method, .topology = "ring"}), 1) << method;
  EXPECT_EQ(said(true, 4, {.eager = true, .per_rank_settings = true}), 1);
  EXPECT_EQ(said(false, 4, {}), 0);
  EXPECT_EQ(said(true, 1, {}), 0);
}

TEST(SettingsWatch, IgnoresGradientsThatAreZero) {
  testing::internal::CaptureStderr();
  on_ranks(2, [&](Flock& flock) {
    const NetworkPtr network = make_network("mlp");
    torch::optim::SGD sgd(network->parameters(), 0.1);
    Trainer trainer(flock, *network, sgd, {});
    for (Step t = 0; t < 4; ++t) {
      trainer.zero_grad();
      (loss_of(*network, 0, t) * 0).backward();
      trainer.step();
    }
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(SettingsWatch, WarnsOnceOfModelsThatTheMethodShouldHaveKeptEqual) {
  for (const bool loads : {true, false}) {
    testing::internal::CaptureStderr();
    on_ranks(3, [&](Flock& flock) {
      const NetworkPtr network = make_network("mlp");
      torch::optim::SGD sgd(network->parameters(), 0.01);
      Trainer trainer(flock, *network, sgd, {.method = "allreduce"});
      for (Step t = 0; t < 40; ++t) {
        if (loads && t == 5 && flock.rank() == 1) set_parameters(*network, flat_parameters(*network) * 1.5);
        train_step(trainer, *network, flock.rank(), t);
      }
    });
    const std::string text = testing::internal::GetCapturedStderr();
    const std::string line = "the models of ranks 0 and 1 differ at step 8";
    const std::size_t at = text.find(line);
    EXPECT_EQ(at != std::string::npos, loads) << text;
    if (loads) {
      EXPECT_EQ(text.find("ranks 0 and", at + line.size()), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace starling::train
