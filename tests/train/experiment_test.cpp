#include "starling/train/experiment.h"

#include <csignal>
#include <gtest/gtest.h>

#include "flock/flock_fixture.h"
#include "starling/base/error.h"
#include "starling/train/torch_version.h"

namespace starling::train {
namespace {

Experiment small_experiment() {
  Experiment experiment;
  experiment.data = "synthetic(train=4000,test=500)";
  experiment.optimizer = "momentum(lr=0.02)";
  experiment.epochs = 4;
  experiment.batch = 16;
  experiment.reports = 4;
  return experiment;
}

const Launcher& processes() {
  for (const Launcher& launcher : launchers())
    if (launcher.processes) return launcher;
  throw Error("no fabric between processes");
}

// Runs `body` in four processes and returns how they ended; a failed check throws.
std::vector<RankEnd> run_four(const Experiment& experiment,
                              const std::function<void(Flock&, const RunReport&)>& watch,
                              const std::function<void(const RunReport&)>& at_end) {
  return processes().run(4, [&](const std::shared_ptr<Fabric>& fabric) {
    torch::set_num_threads(1);
    Flock flock(fabric);
    flock.set_timeout(60s);
    const Reporter reporter = [&](const RunEvent& event) {
      if (const auto* report = std::get_if<RunReport>(&event)) watch(flock, *report);
    };
    at_end(run_experiment(flock, experiment, reporter));
  });
}

TEST(Experiment, LearnsAndReportsTheSameOnEveryRank) {
  const Experiment experiment = small_experiment();
  const auto ends = run_four(
      experiment,
      [&](Flock& flock, const RunReport& report) {
        require(report.workers == 4 && report.loss > 0 && report.images_per_second > 0,
                "a report lacks something");
        // All ranks report the same values.
        std::vector<double> values = {report.loss, report.consensus_distance,
                                      report.test_accuracy.value_or(-1)};
        const auto all = flock.allgather(values, "test");
        for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == values[i % 3], "reports differ");
      },
      [](const RunReport& last) {
        require(last.epoch == 4 && *last.test_accuracy > 0.9,
                "it has not learned: " + std::to_string(*last.test_accuracy));
      });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
}

TEST(Experiment, SurvivorsTakeOverTheShardOfADeadWorker) {
  Experiment experiment = small_experiment();
  experiment.on_peer_failure = "reweight";
  std::uint64_t sent = 0;
  const auto ends = run_four(
      experiment,
      [&](Flock& flock, const RunReport& report) {
        require(report.bytes_sent > sent, "the bytes that the dead rank had sent are not counted");
        sent = report.bytes_sent;
        if (flock.rank() == 2 && report.epoch > 1.4) std::raise(SIGKILL);
      },
      [](const RunReport& last) {
        require(last.workers == 3, "the dead are not counted");
        // Two epochs of all data on three workers (84 batches each), after two epochs of 63 batches.
        require(last.step == 2 * 63 + 2 * 84,
                "the shard was not distributed again: " + std::to_string(last.step));
        require(*last.test_accuracy > 0.9, "it has not learned: " + std::to_string(*last.test_accuracy));
      });
  EXPECT_EQ(ends[2].signal, SIGKILL);
  for (const std::size_t rank : {0, 1, 3}) EXPECT_TRUE(ends[rank].ok) << ends[rank].message;
}

TEST(Experiment, ByDefaultADeathEndsTheRunAndIsNamed) {
  const auto ends = run_four(
      small_experiment(),
      [](Flock& flock, const RunReport& report) {
        if (flock.rank() == 2 && report.epoch > 1.4) std::raise(SIGKILL);
      },
      [](const RunReport&) {});
  for (const std::size_t rank : {0, 1, 3}) {
    EXPECT_FALSE(ends[rank].ok);
    EXPECT_NE(ends[rank].message.find("rank"), std::string::npos) << ends[rank].message;
  }
}

TEST(Experiment, RepeatsWithTheSameSeed) {
  Experiment experiment = small_experiment();
  experiment.epochs = 1;
  std::vector<std::vector<double>> losses(2);
  for (auto& run : losses) {
    const auto fabric_run = [&](const std::shared_ptr<Fabric>& fabric) {
      Flock flock(fabric);
      run_experiment(flock, experiment, [&](const RunEvent& event) {
        if (const auto* report = std::get_if<RunReport>(&event)) run.push_back(report->loss);
      });
    };
    for (const Launcher& launcher : launchers())
      if (!launcher.processes) {
        launcher.run(1, fabric_run);
        break;
      }
  }
  ASSERT_FALSE(losses[0].empty());
  EXPECT_EQ(losses[0], losses[1]);
}

// For `starling report`: repetitions that differ in the seed count as the same experiment.
TEST(Experiment, HasOneSpellingOfItsSettings) {
  const auto canonical = [](const std::string& topology, std::uint64_t seed) {
    Experiment experiment;
    experiment.topology = topology;
    experiment.optimizer = "momentum";
    experiment.message = "bf16";
    experiment.partition = "dirichlet(0.1)";
    experiment.seed = seed;
    RunHeader header;
    header.experiment = settings_of(experiment);
    header.canonical = canonical_settings_of(experiment);
    EXPECT_EQ(header.canonical_setting("optimizer"), canonical_setting("optimizer", "momentum", 0));
    EXPECT_EQ(header.canonical_setting("message"), "bfloat16");
    EXPECT_EQ(header.canonical_setting("partition").find("seed"), std::string::npos);
    return header.canonical_setting("topology");
  };
  EXPECT_EQ(canonical("base", 1), "base(k=1)");
  EXPECT_EQ(canonical("base(1)", 1), "base(k=1)");
  EXPECT_EQ(canonical("od-equidyn", 1), canonical("od-equidyn", 2));
  EXPECT_NE(canonical("od-equidyn(seed=0)", 1), canonical("od-equidyn", 1));
  EXPECT_NE(canonical("hierarchical(od-equidyn(seed=1),local=2)", 1),
            canonical("hierarchical(od-equidyn,local=2)", 1));
}

TEST(Experiment, RefusesSettingsItCannotTrain) {
  const auto refusal = [](Experiment experiment) {
    std::string text;
    for (const Launcher& launcher : launchers())
      if (!launcher.processes) {
        text = launcher
                   .run(1,
                        [&](const std::shared_ptr<Fabric>& fabric) {
                          Flock flock(fabric);
                          run_experiment(flock, experiment, [](const RunEvent&) {});
                        })[0]
                   .message;
        break;
      }
    return text;
  };
  Experiment experiment = small_experiment();
  experiment.model = "lenett";
  EXPECT_NE(refusal(experiment).find("did you mean lenet?"), std::string::npos) << refusal(experiment);
  experiment = small_experiment();
  experiment.batch = 0;
  EXPECT_NE(refusal(experiment).find("batch"), std::string::npos);
  experiment = small_experiment();
  experiment.optimizer = "adamm";
  EXPECT_NE(refusal(experiment).find("did you mean adam"), std::string::npos);
}

TEST(Experiment, RefusesAnAccumulationThatMakesNoStep) {
  Experiment experiment = small_experiment();
  experiment.accumulation = 0;
  EXPECT_THROW(check_numbers(experiment), InvalidArgument);
  experiment.accumulation = 1000;
  for (const char* uneven : {"again", "skip"}) {
    experiment.uneven = uneven;
    for (const RankEnd& end : run_four(
             experiment, [](Flock&, const RunReport&) {}, [](const RunReport&) {}))
      EXPECT_NE(end.message.find("accumulation = 1000: an epoch has 63 batches of 16 samples per worker"),
                std::string::npos)
          << end.message;
  }
}

}  // namespace
}  // namespace starling::train
