#include "starling/record/checkpoint_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "record/checkpoint_state.h"
#include "record/folder.h"
#include "starling/base/error.h"
#include "starling/record/checkpoint_manifest.h"
#include "starling/record/checkpoint_run.h"

namespace starling::record {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

class CheckpointFolderTest : public testing::Test {
 protected:
  CheckpointRun run(const std::string& token, Rank workers = 2, std::size_t keep = 3,
                    std::chrono::milliseconds wait = 10s) const {
    return CheckpointRun({folder_.path("ck"), token, workers, keep, wait, {}});
  }
  static void write(const CheckpointRun& run, Step step) {
    run.begin(step);
    std::vector<Rank> members(static_cast<std::size_t>(run.options().workers));
    std::iota(members.begin(), members.end(), 0);
    for (const Rank rank : members)
      run.write_rank(step, rank, {{"method", "x"}}, SmallState(static_cast<int>(step) + rank).parts());
    run.complete(step, members, {{"method", "x"}});
  }
  std::vector<Step> steps() const {
    std::vector<Step> all;
    for (const CheckpointInfo& info : folder().list()) all.push_back(info.step);
    return all;
  }
  // All names in the folder.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder_.path("ck")))
      all.push_back(entry.path().filename().string());
    std::ranges::sort(all);
    return all;
  }
  CheckpointFolder folder() const { return CheckpointFolder(folder_.path("ck")); }
  void damage(const std::string& file) {
    std::string bytes = folder_.read(file);
    bytes[bytes.size() - 70] ^= 1;
    folder_.write(file, bytes);
  }

  RecordFolder folder_;
};

TEST_F(CheckpointFolderTest, WritesAndReadsACheckpoint) {
  EXPECT_TRUE(folder().list().empty());
  EXPECT_FALSE(folder().newest());
  EXPECT_FALSE(folder().newest_good());
  write(run("a"), 120);
  const auto info = folder().newest();
  ASSERT_TRUE(info);
  EXPECT_EQ(info->step, 120);
  EXPECT_EQ(info->workers, 2);
  EXPECT_EQ(info->run, "a");
  EXPECT_EQ(info->labels, (Labels{{"method", "x"}}));
  EXPECT_TRUE(info->has(1));
  EXPECT_FALSE(info->has(2));
  EXPECT_EQ(info->bytes(), fs::file_size(folder_.path("ck/step-000000120/rank-0.state")) +
                               fs::file_size(folder_.path("ck/step-000000120/rank-1.state")));
  const CheckpointFile file = folder().open(*info, 1);
  EXPECT_EQ(file.label("run"), "a");
  EXPECT_EQ(file.label("rank"), "1");
  EXPECT_EQ(file.label("step"), "120");
  EXPECT_EQ(file.label("workers"), "2");
  SmallState state(0);
  file.read_into(state.places());
  EXPECT_EQ(state, SmallState(121));
  EXPECT_EQ(folder().check(120).number, 0);
  EXPECT_THAT(error_of([&] { folder().open(*info, 2); }),
              HasSubstr("has no file of rank 2; it has those of 0, 1"));
  EXPECT_THAT(error_of([&] { folder().find(7); }), HasSubstr("no checkpoint of step 7; it has those of 120"));
}

TEST_F(CheckpointFolderTest, KeepsTheNewest) {
  const CheckpointRun two = run("a", 2, 2);
  for (const Step step : {10, 20, 30, 40}) write(two, step);
  EXPECT_THAT(names(), ElementsAre("step-000000030", "step-000000040"));
  EXPECT_THAT(steps(), ElementsAre(40, 30));
}

TEST_F(CheckpointFolderTest, DamagedCheckpointsDoNotCountAsKept) {
  const CheckpointRun one = run("a", 2, 1);
  write(run("a", 2, 9), 10);
  write(run("a", 2, 9), 20);
  fs::resize_file(folder_.path("ck/step-000000020/rank-1.state"), 100);
  folder_.write("ck/step-000000010/manifest.json", "not ours to remove");
  write(one, 30);
  EXPECT_THAT(names(), ElementsAre("step-000000010", "step-000000030"));
}

TEST_F(CheckpointFolderTest, RejectsADamagedCheckpointAndOffersThePrevious) {
  for (const Step step : {40, 80, 120}) write(run("a"), step);
  const auto newest = *folder().newest();
  damage("ck/step-000000120/rank-1.state");
  EXPECT_TRUE(folder().newest());  // all sizes are right
  const std::string offer =
      "; the previous checkpoint, step-000000080, is intact: resume from it with --resume 80 (in a program, "
      "resume(folder, 80))";
  EXPECT_THAT(
      error_of([&] { folder().check(120); }),
      testing::AllOf(HasSubstr("step-000000120/rank-1.state is corrupt: its part"), HasSubstr(offer)));
  EXPECT_THAT(error_of([&] { folder().open(newest, 1); }), HasSubstr(offer));
  EXPECT_EQ(error_of([&] { folder().open(newest, 0); }), "");
  EXPECT_EQ(folder().newest_good()->step, 80);

  fs::resize_file(folder_.path("ck/step-000000120/rank-0.state"), 100);
  EXPECT_THAT(error_of([&] { folder().newest(); }),
              testing::AllOf(HasSubstr("rank-0.state is truncated: 100 of "), HasSubstr(offer)));
  fs::remove(folder_.path("ck/step-000000080/rank-0.state"));
  EXPECT_THAT(error_of([&] { folder().find(120); }), HasSubstr("--resume 40"));
  folder_.write("ck/step-000000040/rank-0.state", "foreign");
  EXPECT_THAT(error_of([&] { folder().find(120); }), HasSubstr("; there is no intact checkpoint before it"));
}

TEST_F(CheckpointFolderTest, RejectsFilesOfAnotherCheckpoint) {
  write(run("a"), 40);
  write(run("a"), 80);
  fs::copy_file(folder_.path("ck/step-000000040/rank-1.state"),
                folder_.path("ck/step-000000080/rank-1.state"), fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of([&] { folder().check(80); }),
              HasSubstr("is not the file that manifest.json names: it is from run a, rank 1, step 40"));
  fs::rename(folder_.path("ck/step-000000040"), folder_.path("ck/step-000000050"));
  EXPECT_THAT(error_of([&] { folder().find(50); }), HasSubstr("manifest.json belongs to step 40"));
}

TEST_F(CheckpointFolderTest, DetectsAnyChangeOfTheManifest) {
  write(run("a"), 40);
  const std::string path = "ck/step-000000040/manifest.json";
  const std::string good = folder_.read(path);
  std::fstream file(folder_.path(path), std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t i, char byte) {
    file.seekp(static_cast<std::streamoff>(i)).put(byte).flush();
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char byte : {' ', '7', static_cast<char>(good[i] ^ 1), static_cast<char>(good[i] ^ 0x80)}) {
      if (byte == good[i]) continue;
      put(i, byte);
      ASSERT_THAT(error_of([&] { folder().newest(); }), HasSubstr("manifest.json is ")) << i << " " << byte;
    }
    put(i, good[i]);
  }
  EXPECT_EQ(folder().newest()->step, 40);
  for (std::size_t size = good.size(); size-- > 0;) {
    fs::resize_file(folder_.path(path), size);
    ASSERT_THAT(error_of([&] { folder().newest(); }), HasSubstr("manifest.json is ")) << size;
  }
}

TEST_F(CheckpointFolderTest, HostileManifestsAreRefused) {
  write(run("a"), 40);
  const std::string path = "ck/step-000000040/manifest.json";
  const std::string good = folder_.read(path);
  fs::resize_file(folder_.path(path), std::uintmax_t{1} << 40);  // a sparse file
  EXPECT_THAT(error_of([&] { folder().newest(); }),
              HasSubstr("manifest.json is not a manifest of a checkpoint: "
                        "it has 1099511627776 bytes"));
  folder_.write(path, std::string(1'000'000, '[') + std::string(1'000'000, ']'));
  EXPECT_THAT(error_of([&] { folder().newest(); }), HasSubstr("nested too deeply"));
  folder_.write(path, "{\"labels\":" + std::string(100'000, '['));
  EXPECT_THAT(error_of([&] { folder().newest(); }), HasSubstr("manifest.json is "));
  // Hostile manifests with a valid checksum.
  folder_.write(path, good);
  CheckpointInfo info = read_manifest(folder_.path("ck/step-000000040"));
  for (const char* name : {"../rank-0.state", "/etc/passwd"}) {
    info.files[0].name = name;
    folder_.write(path, manifest_text(info));
    EXPECT_THAT(error_of([&] { folder().newest(); }),
                HasSubstr("a manifest may only name files of its own folder"));
  }
  info.files[0].name = "rank-0.state";
  info.files[0].mark.bytes = std::numeric_limits<std::uint64_t>::max();
  folder_.write(path, manifest_text(info));
  EXPECT_THAT(error_of([&] { folder().newest(); }), HasSubstr("of 18446744073709551615 bytes"));
  folder_.write(path, good);
  EXPECT_EQ(folder().newest()->step, 40);
}

TEST_F(CheckpointFolderTest, ARunThatResumedEarlierReplacesStepsAndIsTheNewest) {
  for (const Step step : {40, 80, 120}) write(run("a"), step);
  write(run("b"), 80);
  EXPECT_THAT(steps(), ElementsAre(80, 120, 40));
  EXPECT_EQ(folder().check(80).run, "b");
  EXPECT_THAT(names(), ElementsAre("step-000000040", "step-000000080", "step-000000120"));
}

TEST_F(CheckpointFolderTest, RemovesLeftoversOfKilledRunsOnly) {
  write(run("old"), 40);
  run("old").write_rank(80, 1, {}, SmallState(1).parts());
  folder_.write("ck/notes.txt", "mine");
  fs::create_directories(folder_.path("ck/step-000000030"));  // the run was killed while it removed this step
  fs::create_directories(folder_.path("ck/step-of-mine"));
  const CheckpointRun fresh = run("new");
  fresh.write_rank(80, 1, {}, SmallState(2).parts());  // before rank 0 has started this step
  fresh.begin(80);
  EXPECT_THAT(names(), ElementsAre("notes.txt", "step-000000040", "step-000000080.part-new", "step-of-mine"));
  fresh.write_rank(80, 0, {}, SmallState(2).parts());
  fresh.complete(80, std::vector<Rank>{0, 1}, {});
  EXPECT_EQ(folder().check(80).run, "new");
}

TEST_F(CheckpointFolderTest, ARunKilledAfterTheManifestHasACheckpoint) {
  write(run("old"), 40);
  write(run("old"), 80);
  fs::rename(folder_.path("ck/step-000000080"), folder_.path("ck/step-000000080.part-old"));
  EXPECT_EQ(folder().newest()->step, 80);
  folder().check(80);
  run("new").begin(90);
  EXPECT_THAT(names(), ElementsAre("step-000000040", "step-000000080", "step-000000090.part-new"));
  EXPECT_EQ(folder().check(80).run, "old");
}

TEST_F(CheckpointFolderTest, FailsIfARankNeverWrites) {
  write(run("a"), 40);
  const auto completing = [&](CheckpointRunOptions options,
                              const std::function<void(const CheckpointRun&)>& before,
                              std::stop_token stop = {}) {
    options.folder = folder_.path("ck");
    options.run = "b";
    options.workers = 2;
    const CheckpointRun late(options);
    late.begin(80);
    late.write_rank(80, 0, {}, SmallState(0).parts());
    before(late);
    const std::string text = error_of([&] {
      late.complete(80, std::vector<Rank>{0, 1}, {}, std::move(stop));
    });
    if (fs::exists(folder_.path("ck/step-000000080.part-b"))) {  // no files until rank 1 is done, too
      EXPECT_FALSE(fs::exists(folder_.path("ck/step-000000080.part-b/rank-0.state")));
      late.write(80, 1, {}, SmallState(1).parts(), std::vector<Rank>{0, 1});
    }
    EXPECT_THAT(names(), ElementsAre("step-000000040"));
    return text;
  };
  CheckpointRunOptions options;
  const auto nothing = [](const CheckpointRun&) {};
  options.wait = 30ms;
  EXPECT_EQ(completing(options, nothing),
            "no checkpoint of step 80: rank 1 has not written its file within 0.03 s");
  options.wait = 1h;
  EXPECT_EQ(
      completing(options, [](const CheckpointRun& late) { late.give_up_rank(80, 1, "the disk is full"); }),
      "no checkpoint of step 80: rank 1: the disk is full");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(completing(options, nothing, stop.get_token()), HasSubstr("stopped while rank 1"));
  options.gone = [](Rank rank) { return rank == 1; };
  EXPECT_EQ(completing(options, nothing), "no checkpoint of step 80: rank 1 died");
  folder().check(40);
}

TEST_F(CheckpointFolderTest, WorksWithRanksInSeparateProcesses) {
  std::vector<pid_t> children;
  for (const Rank rank : {1, 2}) {
    children.push_back(fork());
    if (children.back() == 0) {
      const CheckpointRun child = run("a", 3);
      for (Step step = 0; step < 10; ++step) child.write_rank(step, rank, {}, SmallState(rank).parts());
      _exit(0);
    }
  }
  const CheckpointRun zero = run("a", 3, 100);
  for (Step step = 0; step < 10; ++step) {
    zero.begin(step);
    zero.write_rank(step, 0, {}, SmallState(0).parts());
    zero.complete(step, std::vector<Rank>{2, 0, 1}, {});
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  EXPECT_EQ(steps().size(), 10U);
  for (const CheckpointInfo& info : folder().list()) EXPECT_EQ(folder().check(info.step).files[2].rank, 2);
}

TEST_F(CheckpointFolderTest, RejectsInvalidOptions) {
  EXPECT_THAT(
      error_of([&] { run("a/b"); }),
      HasSubstr("invalid token 'a/b' of a run that writes checkpoints; valid are letters, digits, - and _"));
  EXPECT_THAT(error_of([&] { run(""); }), HasSubstr("letters"));
  EXPECT_THAT(error_of([&] { run("a", 2, 0); }), HasSubstr("keep at least 1"));
  EXPECT_THAT(error_of([&] { run("a", 0); }), HasSubstr("at least 1"));
}

}  // namespace
}  // namespace starling::record
