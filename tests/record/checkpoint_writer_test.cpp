#include "starling/record/checkpoint_writer.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/eventually.h"
#include "kernel/fake_device.h"
#include "record/checkpoint_state.h"
#include "record/folder.h"
#include "starling/base/error.h"
#include "starling/record/checkpoint_phase.h"

namespace starling::record {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

const std::vector<Rank> kBoth = {0, 1};
const std::vector<Rank> kAlone = {0};

CheckpointRunOptions options_of(const fs::path& folder, Rank workers) {
  return {.folder = folder, .run = "a", .workers = workers, .keep = 2, .wait = 10s, .gone = {}};
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename().string());
  std::ranges::sort(all);
  return all;
}

SmallState state_in(const CheckpointFolder& folder, Step step, Rank rank) {
  SmallState state(0);
  folder.open(folder.find(step), rank).read_into(state.places());
  return state;
}

constexpr int kCannotMount = 77;

// Runs `body` in a child, which exits with 0 if it returns "".
template <typename Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (text == "cannot mount") _exit(kCannotMount);
    if (!text.empty()) fmt::print(stderr, "{}\n", text);
    _exit(text.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(CheckpointWriterTest, WritesTheStateAtTheTimeOfSave) {
  const RecordFolder place;
  const CheckpointFolder folder(place.path("ck"));
  CheckpointWriter zero(options_of(folder.path(), 2), 0);
  CheckpointWriter one(options_of(folder.path(), 2), 1);
  EXPECT_FALSE(zero.last_saved());
  for (Step step = 10; step <= 50; step += 10) {
    SmallState state(static_cast<int>(step));
    one.save(step, {}, state.parts(), kBoth);
    zero.save(step, {{"method", "x"}}, state.parts(), kBoth);
    state.x.assign(50, -1);  // the writer has its own copy
  }
  zero.finish();
  EXPECT_FALSE(zero.busy());
  EXPECT_EQ(zero.problem(), std::nullopt);
  EXPECT_EQ(one.problem(), std::nullopt);
  EXPECT_EQ(zero.last_saved(), 50);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000040", "step-000000050"));
  EXPECT_EQ(state_in(folder, 50, 1), SmallState(50));
  EXPECT_EQ(state_in(folder, 40, 0), SmallState(40));
  EXPECT_EQ(folder.newest()->labels, (Labels{{"method", "x"}}));
}

std::atomic<bool> hold{false};

TEST(CheckpointWriterTest, DoesNotBlockWhileTheFileIsWritten) {
  const RecordFolder place;
  const CheckpointFolder folder(place.path("ck"));
  CheckpointWriter writer(options_of(folder.path(), 1), 0);
  hold = true;
  checkpoint_hook = [](CheckpointPhase phase) {
    EXPECT_TRUE(phase != CheckpointPhase::half_written || eventually([] { return !hold; }));
  };
  writer.save(1, {}, SmallState(1).parts(), kAlone);  // returns although the disk is blocked
  EXPECT_TRUE(writer.busy());
  std::thread release([] {
    std::this_thread::sleep_for(30ms);
    hold = false;
  });
  writer.save(2, {}, SmallState(2).parts(), kAlone);
  EXPECT_FALSE(hold);  // save() has waited for the first checkpoint
  writer.finish();
  release.join();
  checkpoint_hook = nullptr;
  EXPECT_EQ(state_in(folder, 1, 0), SmallState(1));
  EXPECT_EQ(state_in(folder, 2, 0), SmallState(2));
}

// The elements of a state on a fake device, whose stream waits for a flag.
class CheckpointDeviceTest : public testing::Test {
 protected:
  CheckpointDeviceTest() {
    kernel::set_device(device_);
    device_->register_flags(&flag_, sizeof flag_);
  }
  ~CheckpointDeviceTest() override {
    flag_ = 1;
    device_->synchronize();
    kernel::set_device(nullptr);
  }

  static std::vector<StatePart> on_device(const SmallState& state) {
    std::vector<StatePart> parts = state.parts();
    for (StatePart& part : parts) part.device = kernel::DeviceContext{};
    return parts;
  }
  // A step of training: new values are enqueued.
  void change(SmallState& state, const SmallState& next) {
    device_->copy_to_device(state.x.data(), next.x.data(), state.x.size() * sizeof(float));
    device_->copy_to_device(state.counters.data(), next.counters.data(), 3 * sizeof(std::int64_t));
  }

  const std::shared_ptr<kernel::FakeDevice> device_ = std::make_shared<kernel::FakeDevice>();
  kernel::Flag flag_ = 0;
  const RecordFolder place_;
  const CheckpointFolder folder_{place_.path("ck")};
};

TEST_F(CheckpointDeviceTest, SavesWhatTheStreamHasWrittenSoFarWithoutWaitingForIt) {
  CheckpointWriter writer(options_of(folder_.path(), 1), 0);
  SmallState state(1);
  const SmallState two(2), three(3);
  device_->wait(flag_, 1);
  change(state, two);
  writer.save(2, {}, on_device(state), kAlone);
  change(state, three);
  EXPECT_TRUE(writer.busy());
  EXPECT_EQ(state, SmallState(1)) << "the device has not come to any of this";
  flag_ = 1;
  writer.save(3, {}, on_device(state), kAlone);
  writer.finish();
  EXPECT_EQ(writer.problem(), std::nullopt);
  EXPECT_EQ(state_in(folder_, 2, 0), two);
  EXPECT_EQ(state_in(folder_, 3, 0), three);

  const SmallState host(4);
  std::vector<StatePart> mixed = host.parts();
  mixed[0] = on_device(state)[0];
  CheckpointRun(options_of(folder_.path(), 1)).write(4, 0, {}, mixed, kAlone);
  SmallState expected(4);
  expected.x = three.x;
  EXPECT_EQ(state_in(folder_, 4, 0), expected) << "without a thread";
}

TEST_F(CheckpointDeviceTest, TheDestructorWaitsForTheDevice) {
  SmallState state(1);
  const SmallState two(2);
  std::thread release;
  {
    CheckpointWriter writer(options_of(folder_.path(), 1), 0);
    device_->wait(flag_, 1);
    change(state, two);
    writer.save(2, {}, on_device(state), kAlone);
    release = std::thread([this] {
      std::this_thread::sleep_for(20ms);
      flag_ = 1;
    });
  }
  release.join();
  EXPECT_EQ(state_in(folder_, 2, 0), two);
}

TEST_F(CheckpointDeviceTest, ADeviceThatFailsIsAProblemOfTheCheckpoint) {
  // A stream of its own, since its error sticks to it.
  const kernel::DeviceContext stream{0, device_->new_stream()};
  CheckpointWriter writer(options_of(folder_.path(), 1), 0);
  std::vector<std::int32_t> integers(4, 1);
  {
    const kernel::DeviceScope scope(stream);
    device_->wait(flag_, 1);
    const Buffer wrong(DType::int32, integers.data(), integers.size(), MemoryKind::cuda, nullptr);
    device_->arithmetic().scale(wrong, 0.5);
  }
  const SmallState state(1);
  std::vector<StatePart> parts = on_device(state);
  for (StatePart& part : parts) part.device = stream;
  writer.save(1, {}, parts, kAlone);
  flag_ = 1;
  writer.finish();
  EXPECT_THAT(writer.problem().value_or(""),
              HasSubstr("an operation on this stream of the fake device has failed"));
  writer.save(2, {}, SmallState(2).parts(), kAlone);
  writer.finish();
  EXPECT_EQ(writer.last_saved(), 2);
}

TEST(CheckpointWriterTest, TheDestructorFinishesTheCheckpoint) {
  const RecordFolder place;
  {
    CheckpointWriter writer(options_of(place.path("ck"), 1), 0);
    writer.save(7, {}, SmallState(7).parts(), kAlone);
  }
  EXPECT_EQ(CheckpointFolder(place.path("ck")).check(7).step, 7);
}

TEST(CheckpointWriterTest, ReportsAProblemOnceAndTheNextSaveWorks) {
  const RecordFolder place;
  const fs::path folder = place.path("ck");
  place.write("ck", "a file in the way");
  CheckpointWriter zero(options_of(folder, 2), 0);
  CheckpointWriter one(options_of(folder, 2), 1);
  const auto save = [&](Step step) {
    one.save(step, {}, SmallState(1).parts(), kBoth);
    one.finish();
    zero.save(step, {}, SmallState(0).parts(), kBoth);
    zero.finish();
  };
  save(1);
  EXPECT_THAT(zero.problem().value(), HasSubstr("cannot create "));
  EXPECT_THAT(one.problem().value(), HasSubstr("cannot create "));
  EXPECT_EQ(zero.problem(), std::nullopt);
  fs::remove(folder);
  save(2);
  EXPECT_EQ(zero.problem(), std::nullopt);
  EXPECT_EQ(zero.last_saved(), 2);

  // Rank 1 cannot write: rank 0 learns it at once, without waiting for its timeout.
  fs::create_directories(folder / "step-000000003.part-a/rank-1.state.part-a");
  save(3);
  EXPECT_THAT(one.problem().value(), HasSubstr("Is a directory"));
  EXPECT_THAT(zero.problem().value(), HasSubstr("no checkpoint of step 3: rank 1: cannot write "));
  EXPECT_THAT(names_in(folder), ElementsAre("step-000000002"));
  save(4);
  EXPECT_EQ(CheckpointFolder(folder).newest_good()->step, 4);
}

// Rank 0 has abandoned a step by the time rank 1 writes its file: no rank completes that folder.
TEST(CheckpointWriterTest, TheLastRankRemovesAnAbandonedStep) {
  const RecordFolder place;
  const fs::path folder = place.path("ck");
  CheckpointWriter zero(options_of(folder, 2), 0);
  CheckpointWriter one(options_of(folder, 2), 1);
  const auto fail = [&](Step step) {
    const fs::path in_the_way = folder / (checkpoint_name(step) + ".part-a") / "rank-0.state.part-a";
    fs::create_directories(in_the_way);
    zero.save(step, {}, SmallState(0).parts(), kBoth);
    zero.finish();
    EXPECT_THAT(zero.problem().value_or(""), HasSubstr("Is a directory"));
  };
  const auto follow = [&](Step step) {
    one.save(step, {}, SmallState(1).parts(), kBoth);
    one.finish();
  };
  fail(1);
  EXPECT_THAT(names_in(folder), ElementsAre("step-000000001.part-a"));
  follow(1);
  EXPECT_THAT(names_in(folder), testing::IsEmpty());
  follow(2);
  fail(2);
  EXPECT_THAT(names_in(folder), testing::IsEmpty());
  // Rank 1 never saves this step.
  fail(3);
  zero.remove_unfinished();
  EXPECT_THAT(names_in(folder), testing::IsEmpty());
  fail(4);
  tidy_checkpoints(folder);  // the next run does the same
  EXPECT_THAT(names_in(folder), testing::IsEmpty());
  // A step that has failed can be saved again.
  fail(5);
  fs::remove_all(folder / "step-000000005.part-a" / "rank-0.state.part-a");
  zero.save(5, {}, SmallState(0).parts(), kBoth);
  EXPECT_TRUE(eventually([&] { return fs::exists(folder / "step-000000005.part-a" / "rank-0.state"); }));
  follow(5);
  zero.finish();
  EXPECT_EQ(CheckpointFolder(folder).check(5).step, 5);
}

// On a full disk, neither rank of a job can write its file.
TEST(CheckpointWriterTest, NothingIsLeftWhereNoRankCanWrite) {
  const RecordFolder place;
  const fs::path folder = place.path("ck");
  const int status = in_child([&]() -> std::string {
    CheckpointWriter zero(options_of(folder, 2), 0);
    CheckpointWriter one(options_of(folder, 2), 1);
    const rlimit both{1000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &both);  // the writing threads block SIGXFSZ
    const std::vector<float> large(20'000, 1.5F);
    const std::vector<StatePart> parts = {state_part<float>("x", large)};
    for (CheckpointWriter* writer : {&zero, &one}) {
      writer->save(1, {}, parts, kBoth);
      writer->finish();
      if (const auto text = writer->problem().value_or(""); text.find("File too large") == std::string::npos)
        return "problem: " + text;
    }
    return names_in(folder).empty() ? "" : "leftovers: " + names_in(folder).front();
  });
  EXPECT_EQ(status, 0);
}

TEST(CheckpointWriterTest, RejectsInvalidRanks) {
  const RecordFolder place;
  EXPECT_THAT(error_of([&] { CheckpointWriter(options_of(place.path("ck"), 2), 2); }),
              HasSubstr("rank 2 of 2 workers; ranks are 0..1"));
}

// Tests a full disk in a child: `fill` uses up the space and `relieve` frees it.
template <typename Fill, typename Relieve>
std::string play_full_disk(const fs::path& folder, const std::string& reason, const Fill& fill,
                           const Relieve& relieve) {
  CheckpointWriter writer(options_of(folder, 1), 0);
  const std::vector<float> large(20'000, 1.5F);
  const std::vector<StatePart> parts = {state_part<float>("x", large)};
  const auto save = [&](Step step) {
    writer.save(step, {}, parts, kAlone);
    writer.finish();
    return writer.problem().value_or("");
  };
  if (const auto text = save(1); !text.empty()) return "before: " + text;
  fill();
  if (const auto text = save(2); text.find(reason) == std::string::npos) return "full: " + text;
  if (names_in(folder) != std::vector<std::string>{"step-000000001"}) return "leftovers";
  CheckpointFolder(folder).check(1);
  relieve();
  if (const auto text = save(3); !text.empty()) return "after: " + text;
  return CheckpointFolder(folder).check(3).step == 3 ? "" : "no step 3";
}

TEST(CheckpointWriterTest, AFullDiskCostsThatCheckpointOnly) {
  const RecordFolder place;
  const fs::path disk = place.path("disk");
  fs::create_directories(disk);
  const int status = in_child([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return "cannot mount";
    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=400k") != 0) return "cannot mount";
    const auto fill = [&] { std::ofstream(disk / "filler") << std::string(280'000, 'x'); };
    return play_full_disk(disk / "ck", "No space left on device", fill, [&] { fs::remove(disk / "filler"); });
  });
  if (status == kCannotMount) GTEST_SKIP() << "needs a mount namespace";
  EXPECT_EQ(status, 0);
}

TEST(CheckpointWriterTest, ALimitOnFileSizesCostsThatCheckpointOnly) {
  const RecordFolder place;
  const auto limit = [](rlim_t bytes) {
    const rlimit both{bytes, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &both);  // the writing thread blocks SIGXFSZ
  };
  const int status = in_child([&] {
    return play_full_disk(
        place.path("ck"), "File too large", [&] { limit(50'000); }, [&] { limit(RLIM_INFINITY); });
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace starling::record
