// Covers starling/fabric/cuda/: the memory of messages.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "fabric/device_messages.h"
#include "kernel/fake_device.h"
#include "kernel/peer_mappings.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/local/local.h"

namespace starling::fabric {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Fabrics of several ranks in one thread, with options.
class DeviceFabrics {
 public:
  explicit DeviceFabrics(Rank size, const CudaOptions& options = {},
                         const kernel::FakeDeviceOptions& device = {})
      : device_(std::make_shared<kernel::FakeDevice>(device)) {
    kernel::set_device(device_);
    const std::string job = fmt::format("device-fabrics-{}-{}", getpid(), jobs_++);
    for (auto& fabric : local_threads(size)) fabrics_.push_back(with_device_messages(fabric, job, options));
  }
  ~DeviceFabrics() {
    std::vector<std::thread> leaving;  // leaving waits for the other ranks
    for (auto& fabric : fabrics_) leaving.emplace_back([&fabric] { fabric.reset(); });
    for (std::thread& thread : leaving) thread.join();
    kernel::set_device(nullptr);
  }
  DeviceFabrics(const DeviceFabrics&) = delete;
  DeviceFabrics& operator=(const DeviceFabrics&) = delete;

  Fabric& operator[](std::size_t rank) { return *fabrics_[rank]; }
  void leave(std::size_t rank) { fabrics_[rank].reset(); }
  kernel::FakeDevice& device() { return *device_; }

 private:
  static inline int jobs_ = 0;
  std::shared_ptr<kernel::FakeDevice> device_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
};

TEST(DeviceMemoryTest, TheLimitNamesTheHolders) {
  DeviceFabrics fabrics(2, {.memory_limit = 9'000'000});
  const Outgoing held = reserve(fabrics[0], 4'000'000, MemoryKind::cuda);
  post_floats(fabrics[0], Floats(1'000'000), 1, 0, MemoryKind::cuda);
  const auto unread = next_from(fabrics[1], 0);
  EXPECT_THAT([&] { reserve(fabrics[0], 2'000'000, MemoryKind::cuda); },
              testing::ThrowsMessage<Error>(AllOf(
                  HasSubstr("a message of 2000000 bytes"), HasSubstr("at most 9000000"),
                  HasSubstr("this rank's operations hold 4001792"), HasSubstr("rank 1 holds 4000000"))));
  EXPECT_EQ(reserve(fabrics[1], 8'000'000, MemoryKind::cuda).size(), 8'000'000U);
}

TEST(DeviceMemoryTest, TooLittleDeviceMemoryNamesBoth) {
  DeviceFabrics fabrics(1, {}, {.memory = 5'000'000});
  const Outgoing held = reserve(fabrics[0], 4'000'000, MemoryKind::cuda);
  EXPECT_THAT([&] { reserve(fabrics[0], 4'000'000, MemoryKind::cuda); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("a message of 4000000 bytes"),
                                                  HasSubstr("beside the 4001792"), HasSubstr("are free"))));
}

// A rank whose stream still waits for a message leaves in a limited time, and keeps what the stream reads.
TEST(DeviceMemoryTest, LeavingDoesNotFreeWhatAStreamWaitsFor) {
  DeviceFabrics fabrics(2, {.linger = 50ms});
  const std::vector<kernel::DeviceContext> streams = {{0, nullptr}, {0, fabrics.device().new_stream()}};
  Gate gate;
  const DeviceBlock<float> values(Floats(1000, 3)), sum(1000);
  {
    const kernel::DeviceScope scope(streams[1]);
    gate.close();
    post_copy(fabrics[0], values.buffer(), {1}, 0);
  }
  {
    std::optional<Arrival> arrival = next_from(fabrics[1], 0);
    const Term terms[] = {{ConstBuffer(sum.buffer()), 1}, arrival->term(DType::float32, 1000, 0, 1)};
    device().arithmetic().combine(sum.buffer(), terms);
  }
  testing::internal::CaptureStderr();
  fabrics.leave(1);
  fabrics.leave(0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rank 1 leaves while its device waits"), HasSubstr("rank 0 leaves")));
  gate.open();
  device().synchronize();
  EXPECT_EQ(sum.values(), Floats(1000, 3));
}

// When sizes change, memory of the old sizes is freed, and receivers unmap it.
TEST(DeviceMemoryTest, FreesUnusedMemory) {
  DeviceFabrics fabrics(2, {.memory_limit = 10'000'000}, {.seed = 3});
  const auto bytes_free = [&] { return fabrics.device().devices()[0].bytes_free; };
  const std::size_t before = bytes_free();
  for (std::uint64_t k = 0; k < 12; ++k) {
    const std::size_t count = 600'000 + 170'000 * (k % 4);
    post_floats(fabrics[0], numbered(0, k, count), 1, k, MemoryKind::cuda);
    ASSERT_EQ(floats_in(*next_from(fabrics[1], 0)), numbered(0, k, count));
    EXPECT_LE(before - bytes_free(), 10'000'000U);
  }
  EXPECT_LE(kernel::peer_mappings(), 4);
}

// A message lies on the device of the thread that reserves it; it may be written and sent on any of its
// streams.
TEST(DeviceMemoryTest, StreamsAndDevicesOfOneRank) {
  DeviceFabrics fabrics(2, {}, {.seed = 9, .devices = 2});
  const auto usage = [&] { return fabrics[0].device_messages()->usage(); };
  for (const int number : {0, 1, 0, 1}) {
    const kernel::DeviceScope scope({number, nullptr});
    post_floats(fabrics[0], Floats(100, 3), 1, 0, MemoryKind::cuda);
    EXPECT_EQ(floats_in(*next_from(fabrics[1], 0)), Floats(100, 3));
  }
  EXPECT_EQ(usage().slots, 2U);
  std::vector<kernel::DeviceContext> streams;
  for (int k = 0; k < 4; ++k) streams.push_back({0, fabrics.device().new_stream()});
  const DeviceBlock<float> one(Floats(5000, 1)), sum(5000);
  for (std::size_t k = 0; k < 40; ++k) {
    std::optional<Outgoing> message;
    {
      const kernel::DeviceScope scope(streams[k % 4]);
      message = reserve(fabrics[0], 5000 * sizeof(float), MemoryKind::cuda);
      const Term terms[] = {{ConstBuffer(one.buffer()), static_cast<double>(k)}};
      device().arithmetic().combine(message->buffer(DType::float32, 5000), terms);
    }
    {
      const kernel::DeviceScope scope(streams[(k + 1) % 4]);
      fabrics[0].post(*message, {}, 1);
    }
    std::optional<Arrival> arrival = next_from(fabrics[1], 0);
    const kernel::DeviceScope scope(streams[(k + 2) % 4]);
    device().order_after(streams[(k + 1) % 4]);  // after the last sum
    const Term terms[] = {{ConstBuffer(sum.buffer()), 1}, arrival->term(DType::float32, 5000, 0, 1)};
    device().arithmetic().combine(sum.buffer(), terms);
    const kernel::DeviceScope other(streams[(k + 3) % 4]);
    arrival.reset();
    message.reset();
  }
  const kernel::DeviceScope scope(streams[(39 + 2) % 4]);
  EXPECT_EQ(sum.values(), Floats(5000, 39 * 40 / 2));
  EXPECT_LE(usage().slots, 4U);
}

TEST(DeviceMemoryTest, LeavesNoOpenFilesOrSockets) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto sockets = [] {  // counts this process only, since other tests run at the same time
    std::set<std::string> own;
    for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;  // for the iterator's own descriptor, which is closed by now
      const std::string target = std::filesystem::read_symlink(file.path(), closed).string();
      if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
    }
    std::ifstream all("/proc/net/unix");
    int found = 0;
    for (std::string line; std::getline(all, line);) {
      std::istringstream words(line);
      std::string inode;
      for (int i = 0; i < 7; ++i) words >> inode;
      if (own.contains(inode) && line.find(fmt::format("@starling-{}-", geteuid())) != line.npos) ++found;
    }
    return found;
  };
  const auto files_before = open_files();
  const int sockets_before = sockets();
  {
    DeviceFabrics fabrics(3, {}, {.seed = 5});
    for (const Rank to : {1, 2}) post_floats(fabrics[0], Floats(1000, 3), to, 0, MemoryKind::cuda);
    for (const std::size_t at : {1U, 2U}) EXPECT_EQ(floats_in(*next_from(fabrics[at], 0)), Floats(1000, 3));
    EXPECT_GT(sockets(), sockets_before);
  }
  EXPECT_EQ(open_files(), files_before);
  EXPECT_EQ(sockets(), sockets_before);
}

TEST(DeviceMemoryTest, AForkedChildLeavesItsParentsMessagesAlone) {
  DeviceFabrics fabrics(2);
  std::optional<Outgoing> held = reserve(fabrics[0], 4000, MemoryKind::cuda);
  post_floats(fabrics[0], Floats(1000, 3), 1, 0, MemoryKind::cuda);
  std::optional<Arrival> arrival = next_from(fabrics[1], 0);
  const pid_t child = fork();
  if (child == 0) {
    held.reset();
    arrival.reset();
    try {
      reserve(fabrics[0], 4000, MemoryKind::cuda);
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("forked child") != std::string::npos ? 0 : 2);
    }
    _exit(1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(floats_in(*arrival), Floats(1000, 3));
  EXPECT_EQ(fabrics[0].device_messages()->usage().slots, 2U);
}

TEST(DeviceMemoryTest, AFabricWithoutDevicesSaysWhatIsNeeded) {
  const auto fabric = local_threads(1)[0];
  EXPECT_EQ(fabric->device_messages(), nullptr);
  EXPECT_THAT([&] { reserve(*fabric, 8, MemoryKind::cuda); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("no messages in CUDA memory")));
}

}  // namespace
}  // namespace starling::fabric
