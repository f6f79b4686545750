#include <chrono>
#include <cmath>
#include <csignal>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>

#include "flock/flock_fixture.h"
#include "record/folder.h"
#include "starling/record/checkpoint_folder.h"
#include "starling/train/experiment.h"
#include "starling/train/torch_version.h"

// Runs in processes that are killed and resumed, with logs as the tool writes them.
namespace starling::train {
namespace {

using testing::HasSubstr;

// 20 steps per epoch on 3 workers, a report every 4 steps, a checkpoint every 5.
Experiment tiny_experiment() {
  Experiment experiment;
  experiment.data = "synthetic(train=480,test=100)";
  experiment.model = "mlp(width=16)";
  experiment.topology = "ring";
  experiment.optimizer = "momentum(lr=0.02)";
  experiment.epochs = 2;
  experiment.batch = 8;
  experiment.reports = 5;
  experiment.local_test = 50;
  return experiment;
}

struct Plan {
  Rank workers = 3;
  double dies = 1e9;  // all workers die at the first report from this epoch on
  double every = 0.25;
  int keep = 3;
  bool resume = false;
  std::optional<Step> from = {};
  bool folder_goes = false;  // after the start, the checkpoint folder is replaced by a file
};

/// A folder with the log and the checkpoints of a run.
struct RunFolder {
  RecordFolder folder;
  std::string checkpoints_path = folder.path("checkpoints");

  std::vector<RankEnd> run(const Experiment& experiment, const Plan& plan) {
    if (!plan.resume) std::filesystem::remove(log_path());
    for (const Launcher& launcher : launchers())
      if (launcher.name == "local_processes")
        return launcher.run(plan.workers,
                            [&](const std::shared_ptr<Fabric>& fabric) { body(fabric, experiment, plan); });
    throw Error("no processes");
  }
  /// Runs it and expects success.
  void finish(const Experiment& experiment, const Plan& plan) {
    const auto ends = run(experiment, plan);
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
  }
  RunLog log() const { return read_run_log(log_path()); }
  std::string printed() const { return folder.read("errors"); }
  CheckpointFolder checkpoints() const { return CheckpointFolder(checkpoints_path); }

  std::string log_path() const { return folder.path("metrics.jsonl"); }

  void body(const std::shared_ptr<Fabric>& fabric, const Experiment& experiment, const Plan& plan) const {
    torch::set_num_threads(1);
    require(freopen(folder.path("errors").c_str(), "a", stderr) != nullptr, "stderr");
    Flock flock(fabric);
    flock.set_timeout(20s);
    std::ofstream out;
    if (flock.rank() == 0) out.open(log_path(), std::ios::app);
    const Reporter reporter = [&](const RunEvent& event) {
      std::visit([&](const auto& one) { out << to_line(one) << std::flush; }, event);
      if (plan.folder_goes && flock.rank() == 0 && std::holds_alternative<RunHeader>(event)) {
        std::filesystem::remove_all(checkpoints_path);
        std::ofstream(checkpoints_path) << "in the way";
      }
      const auto* report = std::get_if<RunReport>(&event);
      if (report == nullptr || report->epoch < plan.dies) return;
      flock.barrier("test");
      std::raise(SIGKILL);
    };
    run_experiment(flock, experiment, reporter,
                   {.folder = checkpoints_path,
                    .every = plan.every,
                    .keep = plan.keep,
                    .resume = plan.resume,
                    .resume_step = plan.from});
  }
};

// Compares everything that does not depend on a clock. The first report after a resume covers fewer steps
// than in an uninterrupted run, which only its mean loss shows.
void expect_same_run(const RunLog& straight, const RunLog& resumed, const std::string& what) {
  ASSERT_EQ(straight.reports.size(), resumed.reports.size()) << what;
  ASSERT_EQ(resumed.resumes.size(), 1U) << what;
  bool first = true;
  for (std::size_t i = 0; i < straight.reports.size(); ++i) {
    const RunReport& a = straight.reports[i];
    const RunReport& b = resumed.reports[i];
    const std::string at = fmt::format("{} step {}", what, a.step);
    EXPECT_EQ(a.step, b.step) << at;
    EXPECT_EQ(a.epoch, b.epoch) << at;
    EXPECT_EQ(a.learning_rate, b.learning_rate) << at;
    EXPECT_EQ(a.consensus_distance, b.consensus_distance) << at;
    EXPECT_EQ(a.bytes_sent, b.bytes_sent) << at;
    EXPECT_EQ(a.test_accuracy, b.test_accuracy) << at;
    EXPECT_EQ(a.test_loss, b.test_loss) << at;
    EXPECT_EQ(a.local_accuracy, b.local_accuracy) << at;
    const bool after = a.step > resumed.resumes[0].step;
    EXPECT_TRUE(a.loss == b.loss || (after && first)) << at << ": " << a.loss << " and " << b.loss;
    if (after) first = false;
  }
  EXPECT_TRUE(straight.end && resumed.end && straight.end->step == resumed.end->step) << what;
}

TEST(ExperimentCheckpoint, AKilledRunContinuesBitForBit) {
  struct Kind {
    std::string method, topology, uneven, optimizer = "momentum(lr=0.02)";
  };
  for (const Kind& kind :
       {Kind{"dsgd-awc", "one-peer-exponential", "again"}, Kind{"relay-sgd", "chain", "skip"},
        Kind{"gradient-tracking", "ring", "again", "adamw(lr=0.01)"},
        Kind{"push-sum", "star(weights=push)", "skip"}}) {
    Experiment experiment = tiny_experiment();
    experiment.method = kind.method;
    experiment.topology = kind.topology;
    experiment.optimizer = kind.optimizer;
    experiment.partition = "dirichlet(0.1)";
    experiment.uneven = kind.uneven;
    RunFolder straight, killed;
    straight.finish(experiment, {});
    const auto ends = killed.run(experiment, {.dies = 1.55});
    for (const RankEnd& end : ends) EXPECT_EQ(end.signal, SIGKILL) << end.message;
    const auto newest = killed.checkpoints().newest();
    ASSERT_TRUE(newest);
    killed.finish(experiment, {.resume = true});
    const RunLog log = killed.log();
    expect_same_run(straight.log(), log, kind.method);
    ASSERT_EQ(log.resumes.size(), 1U);
    EXPECT_EQ(log.resumes[0].step, newest->step);
    EXPECT_EQ(log.resumes[0].reset, "");
    // The run was killed in the middle of the second epoch.
    for (const RunReport& report : log.reports)
      EXPECT_FALSE(report.test_accuracy && report.step == newest->step);
    EXPECT_GT(newest->step, log.end->step / 2);
  }
}

TEST(ExperimentCheckpoint, AnotherNumberOfWorkersStartsFromTheMeanModel) {
  for (const auto& [then, now] : {std::pair{2, 3}, {4, 2}}) {
    Experiment experiment = tiny_experiment();
    experiment.topology = "one-peer-exponential";
    RunFolder folder;
    folder.run(experiment, {.workers = then, .dies = 1.55});
    const auto newest = folder.checkpoints().newest();
    ASSERT_TRUE(newest);
    folder.finish(experiment, {.workers = now, .resume = true});
    const RunLog log = folder.log();
    ASSERT_EQ(log.resumes.size(), 1U);
    const std::string& reset = log.resumes[0].reset;
    EXPECT_THAT(reset, HasSubstr(fmt::format("{} workers, now {}", then, now)));
    for (const char* word :
         {"mean model", "optimizer", "method", "random generators", "order of the data", "epoch 2"})
      EXPECT_THAT(reset, HasSubstr(word));
    const RunReport* last = log.last_evaluation();
    ASSERT_TRUE(last != nullptr);
    EXPECT_EQ(last->epoch, 2);
    EXPECT_EQ(last->workers, now);
    // That number of workers repeats the second epoch.
    EXPECT_EQ(last->step, newest->step + 480 / (now * 8));
    std::uint64_t before = 0;
    for (const RunReport& report : log.reports) {
      EXPECT_GE(report.bytes_sent, before);
      before = report.bytes_sent;
    }
    // The resumed model is still trained, and the run can be resumed again.
    EXPECT_GT(*last->test_accuracy, 0.3);
    EXPECT_EQ(folder.checkpoints().newest()->workers, now);
  }
}

TEST(ExperimentCheckpoint, RefusesOtherSettingsOnAllRanksAndNamesThem) {
  const Experiment experiment = tiny_experiment();
  RunFolder folder;
  folder.run(experiment, {.dies = 0.5});
  const auto refusal = [&](const std::function<void(Experiment&)>& change, const std::string& says) {
    Experiment other = experiment;
    change(other);
    const auto ends = folder.run(other, {.resume = true});
    for (const RankEnd& end : ends) {
      EXPECT_FALSE(end.ok) << says;
      EXPECT_THAT(end.message, HasSubstr(says));
    }
  };
  refusal([](Experiment& e) { e.method = "dsgd-atc"; }, "method = dsgd-awc, this run has dsgd-atc");
  refusal([](Experiment& e) { e.batch = 16; }, "batch = 8, this run has 16");
  refusal([](Experiment& e) { e.optimizer = "adam"; }, "optimizer = momentum(lr=0.02), this run has adam");
  // More epochs, with another learning-rate schedule.
  Experiment longer = experiment;
  longer.epochs = 3;
  longer.cosine = false;
  folder.finish(longer, {.resume = true});
  EXPECT_EQ(folder.log().last_evaluation()->epoch, 3);
}

TEST(ExperimentCheckpoint, ResumesWithAnotherSpellingOfTheSameSettings) {
  Experiment experiment = tiny_experiment();
  experiment.topology = "base";
  experiment.message = "bf16";
  RunFolder folder;
  folder.run(experiment, {.dies = 0.5});
  Experiment spelled_out = experiment;
  spelled_out.topology = "base(k=1)";
  spelled_out.message = "bfloat16";
  spelled_out.optimizer = canonical_setting("optimizer", experiment.optimizer, experiment.seed);
  spelled_out.model = canonical_setting("model", experiment.model, experiment.seed);
  spelled_out.data = canonical_setting("data", experiment.data, experiment.seed);
  spelled_out.method = canonical_setting("method", experiment.method, experiment.seed);
  ASSERT_NE(spelled_out.optimizer, experiment.optimizer);
  folder.finish(spelled_out, {.resume = true});
  EXPECT_EQ(folder.log().resumes.size(), 1U);
}

TEST(ExperimentCheckpoint, RefusesADamagedFileOnAllRanksAndOffersTheOneBefore) {
  const Experiment experiment = tiny_experiment();
  RunFolder straight, folder;
  straight.finish(experiment, {});
  folder.run(experiment, {.dies = 1.55});
  const auto all = folder.checkpoints().list();
  ASSERT_GE(all.size(), 2U);
  {
    std::fstream file(all[0].folder / checkpoint_file_name(1),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(all[0].files[1].mark.bytes / 2));
    file.put('\x55').put('\x2a').put('\x55');
  }
  const auto ends = folder.run(experiment, {.resume = true});
  EXPECT_THAT(ends[1].message, HasSubstr("is corrupt"));
  EXPECT_THAT(ends[1].message, HasSubstr(fmt::format("resume from it with --resume {}", all[1].step)));
  for (const std::size_t rank : {0, 2}) EXPECT_THAT(ends[rank].message, HasSubstr("rank 1: "));
  folder.finish(experiment, {.resume = true, .from = all[1].step});
  expect_same_run(straight.log(), folder.log(), "from the one before");
  // For a step without a checkpoint, the error lists those that exist.
  for (const RankEnd& end : folder.run(experiment, {.resume = true, .from = 7}))
    EXPECT_THAT(end.message, HasSubstr("has no checkpoint of step 7; it has those of"));
}

TEST(ExperimentCheckpoint, WithoutACheckpointStartsFromScratch) {
  Experiment experiment = tiny_experiment();
  experiment.epochs = 1;
  RunFolder folder;
  folder.finish(experiment, {.resume = true});
  const RunLog log = folder.log();  // throws unless it begins with a header
  EXPECT_TRUE(log.resumes.empty());
  EXPECT_EQ(log.end->step, 20);
  // A finished run has nothing left to do.
  folder.finish(experiment, {.resume = true});
  const RunLog again = folder.log();
  EXPECT_TRUE(again.resumes.empty());
  EXPECT_EQ(again.end->step, 20);
  EXPECT_EQ(again.reports.size(), log.reports.size());
}

TEST(ExperimentCheckpoint, KeepsTheNewest) {
  Experiment experiment = tiny_experiment();
  experiment.epochs = 1;
  for (const int keep : {1, 2}) {
    RunFolder folder;
    folder.finish(experiment, {.keep = keep});
    std::vector<Step> steps;
    for (const CheckpointInfo& info : folder.checkpoints().list()) steps.push_back(info.step);
    EXPECT_EQ(steps, keep == 1 ? std::vector<Step>{20} : (std::vector<Step>{20, 15}));
  }
}

TEST(ExperimentCheckpoint, TrainsOnIfCheckpointsCannotBeWritten) {
  Experiment experiment = tiny_experiment();
  experiment.epochs = 1;
  RunFolder folder, plain;
  folder.finish(experiment, {.folder_goes = true});
  plain.finish(experiment, {});
  EXPECT_THAT(folder.printed(), HasSubstr("starling: rank 0:"));
  EXPECT_THAT(folder.printed(), HasSubstr(folder.checkpoints_path));
  ASSERT_TRUE(folder.log().finished());
  EXPECT_EQ(folder.log().reports.back().test_loss, plain.log().reports.back().test_loss);
  EXPECT_EQ(folder.log().reports.back().bytes_sent, plain.log().reports.back().bytes_sent);
}

TEST(ExperimentCheckpoint, RefusesInvalidOptions) {
  RunFolder nowhere;
  nowhere.checkpoints_path = "/proc/no-such-folder/checkpoints";
  for (const RankEnd& end : nowhere.run(tiny_experiment(), {}))
    EXPECT_THAT(end.message, HasSubstr("cannot write checkpoints to /proc/no-such-folder"));
  RunFolder folder;
  for (const RankEnd& end : folder.run(tiny_experiment(), {.every = 0}))
    EXPECT_THAT(end.message, HasSubstr("every 0"));
  for (const RankEnd& end : folder.run(tiny_experiment(), {.keep = 0}))
    EXPECT_THAT(end.message, HasSubstr("keep = 0"));
}

}  // namespace
}  // namespace starling::train
