#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "record/folder.h"
#include "starling/record/checkpoint_folder.h"
#include "starling/record/checkpoint_phase.h"
#include "train/trained.h"

// Tests the files that Trainer::save() leaves, whatever happens while it writes.
namespace starling::train {
namespace {

using testing::HasSubstr;

/// A small model and its trainer.
struct SmallTraining {
  explicit SmallTraining(Flock& flock)
      : network(make_network("mlp", flock.rank())),
        sgd(network->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        trainer(flock, *network, sgd) {}
  void steps(Step count) {
    for (Step t = 0; t < count; ++t) train_step(trainer, *network, trainer.flock().rank(), trainer.steps());
  }

  NetworkPtr network;
  torch::optim::SGD sgd;
  Trainer trainer;
};

std::vector<Step> saved_steps(const std::string& folder) {
  std::vector<Step> steps;
  for (const CheckpointInfo& info : CheckpointFolder(folder).list()) steps.push_back(info.step);
  return steps;
}

TEST(FlockCheckpoints, KeepTheNewest) {
  const RecordFolder folder;
  on_ranks(2, [&](Flock& flock) {
    SmallTraining run(flock);
    for (int k = 0; k < 4; ++k) {
      run.steps(2);
      run.trainer.save(folder.path("saved"), {.keep = 2});
      require(saved_steps(folder.path("saved"))[0] == run.trainer.steps(),
              "it is complete when save() returns");
      flock.barrier("compared");
    }
  });
  EXPECT_EQ(saved_steps(folder.path("saved")), (std::vector<Step>{8, 6}));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("saved")))
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr(".part-")));
}

// The phase of its next save at which a process kills itself.
CheckpointPhase deadly_phase = CheckpointPhase::count;
void die_at_phase(CheckpointPhase phase) {
  if (phase == deadly_phase) std::raise(SIGKILL);
}

TEST(FlockCheckpoints, IgnoreASaveThatWasKilled) {
  for (const CheckpointPhase phase :
       {CheckpointPhase::opened, CheckpointPhase::half_written, CheckpointPhase::written,
        CheckpointPhase::renamed, CheckpointPhase::before_manifest}) {
    const RecordFolder folder;
    const std::string saved = folder.path("saved");
    const auto ends = ends_on("local_processes", 2, [&](Flock& flock) {
      SmallTraining run(flock);
      run.steps(3);
      run.trainer.save(saved);
      run.steps(2);
      deadly_phase = phase;
      checkpoint_hook = die_at_phase;
      run.trainer.save(saved);
    });
    EXPECT_EQ(ends[0].signal, SIGKILL);
    on_ranks(
        2,
        [&](Flock& flock) {
          SmallTraining run(flock);
          const auto resumed = run.trainer.resume(saved);
          require(resumed && resumed->step == 3, "not the complete one");
          run.steps(4);
          run.trainer.save(saved);
        },
        "local_processes");
    EXPECT_EQ(saved_steps(saved), (std::vector<Step>{7, 3}));
    for (const auto& entry : std::filesystem::directory_iterator(saved))
      EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr(".part-")));
  }
}

TEST(FlockCheckpoints, AFailureOfOneRankIsAnErrorOnAllAndTrainingContinues) {
  const RecordFolder folder;
  const std::string saved = folder.path("saved");
  on_ranks(
      3,
      [&](Flock& flock) {
        SmallTraining run(flock);
        run.steps(1);
        if (flock.rank() == 1)
          checkpoint_hook = [](CheckpointPhase phase) {
            if (phase == CheckpointPhase::opened) throw Error("the disk is full");
          };
        const std::string text = message_of<Error>([&] { run.trainer.save(saved); });
        require(text.find("the disk is full") != text.npos, text);
        require(saved_steps(saved).empty(), "an incomplete checkpoint");
        checkpoint_hook = nullptr;
        run.steps(1);
        run.trainer.save(saved);
        require(saved_steps(saved) == std::vector<Step>{2}, "the next save");
      },
      "local_processes");
}

TEST(FlockCheckpoints, RefuseAFolderThatCannotBeWritten) {
  const RecordFolder folder;
  folder.write("file", "not a folder");
  on_ranks(2, [&](Flock& flock) {
    SmallTraining run(flock);
    std::string text = message_of<Error>([&] { run.trainer.save(folder.path("file/saved")); });
    require(text.find("cannot write checkpoints to") != text.npos, text);
    text = message_of<InvalidArgument>([&] { run.trainer.save(folder.path("saved"), {.keep = 0}); });
    require(text.find("keep = 0") != text.npos, text);
    run.steps(1);
  });
}

TEST(FlockCheckpoints, SavesThatAreNotTheSameAreRefusedAtOnce) {
  const RecordFolder folder;
  on_ranks(3, [&](Flock& flock) {
    SmallTraining run(flock);
    run.steps(1);
    const auto refused = [&](const std::string& name, const SaveOptions& options, const std::string& says) {
      const std::string text =
          message_of<InvalidArgument>([&] { run.trainer.save(folder.path(name), options); });
      require(text.find("the ranks do not save the same checkpoint: ") == 0 &&
                  text.find(says) != std::string::npos,
              text);
    };
    const std::string own = fmt::format("of-{}", flock.rank() == 2 ? 2 : 0);
    refused(own, {}, fmt::format("{} on rank 0, {} on rank 2", folder.path("of-0"), folder.path("of-2")));
    refused("saved", {.keep = flock.rank() == 1 ? 1 : 3}, "keep: 3 on rank 0, 1 on rank 1");
    refused("saved", {.background = flock.rank() == 1}, "background: false on rank 0, true on rank 1");
    require(!std::filesystem::exists(folder.path("of-0")), "a folder was made");
    run.trainer.save(folder.path("saved"));
    refused(own, {}, "on rank 2");  // also after a good save
  });
}

TEST(FlockCheckpoints, ResumeTellsAFileAndAMissingFolder) {
  const RecordFolder folder;
  folder.write("file", "not a folder");
  testing::internal::CaptureStderr();
  on_ranks(2, [&](Flock& flock) {
    SmallTraining run(flock);
    const std::string text = message_of<Error>([&] { run.trainer.resume(folder.path("file")); });
    require(text.find("it is not a folder; give the folder that was saved to") != text.npos, text);
    require(!run.trainer.resume(folder.path("chekpoints")), "nothing is there");
  });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text,
              HasSubstr(fmt::format("there is no folder {} to resume from, so training starts from scratch",
                                    folder.path("chekpoints"))));
}

}  // namespace
}  // namespace starling::train
