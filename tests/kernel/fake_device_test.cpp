#include "kernel/fake_device.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "blocks.h"
#include "starling/base/error.h"

namespace starling::kernel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

template <typename T>
Buffer device_buffer(std::vector<T>& values) {
  return {dtype_of<T>, values.data(), values.size(), MemoryKind::cuda, nullptr};
}
Term device_term(std::vector<float>& values, double weight) {
  return {ConstBuffer(device_buffer(values)), weight};
}
Term device_message(std::vector<float>& values, double weight, const Flag& flag, std::uint32_t number) {
  Term term = device_term(values, weight);
  term.flag = &flag;
  term.number = number;
  return term;
}

template <typename Condition>
bool becomes_true(const Condition& condition) {
  for (int tries = 0; tries < 20000; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return false;
}

class FakeDeviceTest : public testing::Test {
 protected:
  FakeDeviceTest() { device_.register_flags(flags_.data(), sizeof(flags_)); }

  // Declared before the device, whose threads use the flags.
  std::array<Flag, 4> flags_{};
  FakeDevice device_{{.seed = 7}};
  const Arithmetic& arithmetic_ = device_.arithmetic();
};

TEST_F(FakeDeviceTest, SaysThatItIsFake) {
  EXPECT_EQ(device_.version(), "fake");
  ASSERT_EQ(device_.devices().size(), 1U);
  EXPECT_EQ(device_.devices()[0].name, "fake");
}

TEST_F(FakeDeviceTest, RunsAStreamInOrder) {
  std::vector<float> x(100, 1), one(100, 1), result(100);
  double expected = 1;
  for (int i = 0; i < 12; ++i) {
    arithmetic_.scale(device_buffer(x), 2);
    arithmetic_.reduce(Reduction::sum, device_buffer(x), device_buffer(one));
    expected = expected * 2 + 1;
  }
  device_.copy_to_host(result.data(), x.data(), 100 * sizeof(float));
  device_.synchronize();
  EXPECT_EQ(result, std::vector<float>(100, static_cast<float>(expected)));
}

TEST_F(FakeDeviceTest, StreamsDoNotWaitForEachOther) {
  const DeviceContext blocked{0, device_.new_stream()};
  std::vector<float> x(10, 1), y(10, 1);
  {
    const DeviceScope scope(blocked);
    device_.wait(flags_[0], 1);
    arithmetic_.scale(device_buffer(x), 3);
  }
  arithmetic_.scale(device_buffer(y), 3);
  device_.synchronize();
  EXPECT_EQ(y, std::vector<float>(10, 3));
  device_.write(flags_[0], 1);
  const DeviceScope scope(blocked);
  device_.synchronize();
  EXPECT_EQ(x, std::vector<float>(10, 3));
}

TEST_F(FakeDeviceTest, OrderAfterOrdersStreams) {
  const DeviceContext first{0, device_.new_stream()};
  const DeviceContext second{0, device_.new_stream()};
  std::vector<float> x(1000, 1), one(1000, 1);
  for (int i = 0; i < 10; ++i) {
    {
      const DeviceScope scope(first);
      device_.order_after(second);
      arithmetic_.scale(device_buffer(x), 2);
    }
    const DeviceScope scope(second);
    device_.order_after(first);
    arithmetic_.reduce(Reduction::sum, device_buffer(x), device_buffer(one));
  }
  device_.order_after(second);
  device_.synchronize();
  EXPECT_EQ(x, std::vector<float>(1000, 2047));
}

TEST_F(FakeDeviceTest, TakesTheTimeBetweenMoments) {
  const Device::Moment before = device_.mark_moment();
  device_.wait(flags_[2], 1);
  const Device::Moment after = device_.mark_moment();
  device_.seconds_between(before, before);  // does not wait for later work
  EXPECT_TRUE(device_.reached(before));
  EXPECT_FALSE(device_.reached(after));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  flags_[2] = 1;
  EXPECT_GE(device_.seconds_between(before, after), 0.002);
  EXPECT_TRUE(device_.reached(after));
}

TEST_F(FakeDeviceTest, WritesAFlagAfterEarlierWork) {
  std::vector<float> x(1000, 1);
  for (std::uint32_t number = 1; number <= 20; ++number) {
    arithmetic_.scale(device_buffer(x), 2);
    device_.write(flags_[1], number);
    device_.wait(flags_[2], number);
    ASSERT_TRUE(becomes_true([&] { return flags_[1].load(std::memory_order_acquire) == number; }));
    ASSERT_EQ(x[999], static_cast<float>(1U << number));  // the stream now waits for us
    flags_[2].store(number, std::memory_order_release);
  }
  device_.synchronize();
}

TEST_F(FakeDeviceTest, AWaitEndsWhenTheWriterIsLost) {
  flags_[0] = 3;
  device_.wait(flags_[0], 9);
  flags_[0].fetch_or(kLost);
  device_.synchronize();
  EXPECT_EQ(flags_[0].load(), 3 | kLost);
}

// A page of flags in memory that processes can share.
class FlagPage {
 public:
  FlagPage()
      : flags_(static_cast<Flag*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~FlagPage() { munmap(flags_, kBytes); }
  FlagPage(const FlagPage&) = delete;
  FlagPage& operator=(const FlagPage&) = delete;

  void give_to(Device& device) { device.register_flags(flags_, kBytes); }
  Flag& operator[](std::size_t i) { return flags_[i]; }

 private:
  static constexpr std::size_t kBytes = 4096;
  Flag* flags_;
};

// Two devices average their vectors: slot k mod 2 of step k is written once both ranks have read step k - 2.
TEST(FakeDevicePairTest, ExchangesThroughMappedMemory) {
  constexpr std::uint32_t kSteps = 40;
  constexpr std::size_t kCount = 1024;
  FlagPage flags;  // `ready` and `done` of each rank
  std::array<FakeDevice, 2> devices{FakeDevice({.seed = 1}), FakeDevice({.seed = 2})};
  std::array<Device::SharedMemory, 2> own;
  std::array<const float*, 2> theirs{};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    flags.give_to(devices[rank]);
    own[rank] = devices[rank].create_shared(2 * kCount * sizeof(float));
  }
  for (std::size_t rank = 0; rank < 2; ++rank)
    theirs[rank] = static_cast<const float*>(
        devices[rank].map_shared(Descriptor(dup(own[1 - rank].descriptor.get())), own[1 - rank].bytes));

  std::array<std::vector<float>, 2> x{std::vector<float>(kCount, 0), std::vector<float>(kCount, 1)};
  std::array<std::vector<float>, 2> pull{std::vector<float>(kCount, 1), std::vector<float>(kCount, 3)};
  const auto rank_body = [&](std::size_t rank) {
    FakeDevice& device = devices[rank];
    const DeviceScope scope({0, device.new_stream()});
    for (std::uint32_t k = 1; k <= kSteps; ++k) {
      auto* slot = static_cast<float*>(own[rank].address) + k % 2 * kCount;
      if (k > 2) device.wait(flags[2 * (1 - rank) + 1], k - 2);
      const Buffer mine = device_buffer(x[rank]);
      device.arithmetic().copy(mine.at(static_cast<void*>(slot)), mine);
      device.write(flags[2 * rank], k);
      Term message{ConstBuffer(DType::float32, theirs[rank] + k % 2 * kCount, kCount, MemoryKind::cuda, {}),
                   0.5};
      message.flag = &flags[2 * (1 - rank)];
      message.number = k;
      device.arithmetic().combine(mine, std::array{device_term(x[rank], 0.5), message});
      device.write(flags[2 * rank + 1], k);
      device.arithmetic().reduce(Reduction::sum, mine, device_buffer(pull[rank]));
    }
    device.synchronize();
  };
  std::thread other([&] { rank_body(1); });
  rank_body(0);
  other.join();

  float left = 0, right = 1;
  for (std::uint32_t k = 1; k <= kSteps; ++k) {
    const float mean = (left + right) / 2;
    left = mean + 1;
    right = mean + 3;
  }
  EXPECT_EQ(x[0], std::vector<float>(kCount, left));
  EXPECT_EQ(x[1], std::vector<float>(kCount, right));
}

TEST_F(FakeDeviceTest, MovesTheWeightOfALostTermToTheFirst) {
  std::vector<std::vector<float>> blocks;
  for (std::uint64_t seed = 0; seed < 4; ++seed) blocks.push_back(odd_numbers<float>(501, seed));
  flags_[0] = 5;
  flags_[1] = 4;          // lost before message 5
  flags_[2] = 5 | kLost;  // lost after message 5
  std::vector<Term> terms = {device_term(blocks[0], 0.4)};
  for (std::size_t t = 1; t < 4; ++t)
    terms.push_back(device_message(blocks[t], 0.1 + 0.05 * static_cast<double>(t), flags_[t - 1], 5));
  std::vector<Term> left = {{blocks[0].data(), 0.4 + terms[2].weight},
                            {blocks[1].data(), terms[1].weight},
                            {blocks[3].data(), terms[3].weight}};
  const Arithmetic& host = arithmetic_in(MemoryKind::host);
  std::vector<float> found(501), around(501), x(501), expected(501), x_expected(501);
  std::vector<float> gradient = odd_numbers<float>(501, 9);

  arithmetic_.combine(device_buffer(found), terms);
  flags_[1].fetch_or(kLost);
  device_.synchronize();
  host.combine({DType::float32, expected.data(), 501}, left);
  EXPECT_TRUE(same_blocks(found, expected));

  arithmetic_.combine_around(DType::float32, device_buffer(around), device_buffer(gradient), terms[0],
                             std::span(terms).subspan(1));
  host.combine_around(DType::float32, {DType::float32, expected.data(), 501},
                      {DType::float32, gradient.data(), 501}, left[0], std::span(left).subspan(1));
  device_.synchronize();
  EXPECT_TRUE(same_blocks(around, expected));

  arithmetic_.sgd_update({terms, device_buffer(gradient), 0.5, device_buffer(x)}, {}, {}, true);
  host.sgd_update(
      {left, {DType::float32, gradient.data(), 501}, 0.5, {DType::float32, x_expected.data(), 501}}, {}, {},
      true);
  device_.synchronize();
  EXPECT_TRUE(same_blocks(x, x_expected));
}

TEST_F(FakeDeviceTest, UpdatesLikeTheHost) {
  const Arithmetic& host = arithmetic_in(MemoryKind::host);
  std::vector<std::vector<float>> found, expected;
  for (const bool on_device : {true, false}) {
    std::vector<std::vector<float>> v;  // x, gradient, m, v, sum, copy
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      Random random(seed, 1, 2);
      for (auto& value : v.emplace_back(203)) value = static_cast<float>(random.uniform() + 0.1);
    }
    const Arithmetic& arithmetic = on_device ? arithmetic_ : host;
    const auto buffer = [&](std::size_t i) {
      return on_device ? device_buffer(v[i]) : Buffer(DType::float32, v[i].data(), v[i].size());
    };
    {
      const std::vector<Term> terms = {{ConstBuffer(buffer(0)), 1.0}};
      const UpdatePass pass{terms, buffer(1), 0.5, buffer(0), buffer(5)};
      arithmetic.sgd_update(pass, {.momentum = 0.9}, buffer(2), false);
      arithmetic.adam_update(pass, {}, buffer(2), buffer(3), 3);
      arithmetic.accum_adam_update(pass, {}, buffer(2), buffer(3), buffer(4), 3, 2, true);
      arithmetic.moments({}, buffer(0), buffer(1), buffer(2), buffer(3));
      arithmetic.moment_step({}, buffer(0), buffer(2), buffer(3));
      arithmetic.divide(buffer(4), 3);
      arithmetic.swap(buffer(4), buffer(5));
      arithmetic.copy_strided(buffer(4), 1, buffer(3), 3);
      arithmetic.zero(buffer(1));
    }  // the device has copied the terms
    v.push_back({static_cast<float>(arithmetic.sum_of_squares(buffer(0))),
                 arithmetic.all_finite(buffer(0)) ? 1.0F : 0.0F});
    (on_device ? found : expected) = v;
  }
  EXPECT_EQ(found, expected);
}

TEST_F(FakeDeviceTest, MarksNonfiniteResults) {
  std::vector<float> x(20, 1), gradient(20, 1);
  const std::shared_ptr<bool> mark = arithmetic_.make_mark();
  const auto marked = [&] { return std::atomic_ref<bool>(*mark).load(std::memory_order_acquire); };
  const std::vector<Term> terms = {device_term(x, 1)};
  const UpdatePass pass{terms, device_buffer(gradient), 1, device_buffer(x), {}, mark.get()};
  arithmetic_.sgd_update(pass, {}, {}, true);
  device_.synchronize();
  EXPECT_FALSE(marked());
  gradient[13] = std::numeric_limits<float>::infinity();
  arithmetic_.sgd_update(pass, {}, {}, true);
  EXPECT_TRUE(becomes_true(marked));
  device_.synchronize();
}

TEST_F(FakeDeviceTest, MapsTheMemoryOfPeersReadOnly) {
  Device::SharedMemory memory = device_.create_shared(5000);
  EXPECT_EQ(memory.bytes, 8192U);
  FakeDevice peer;
  void* mapped = peer.map_shared(Descriptor(dup(memory.descriptor.get())), memory.bytes);
  std::vector<float> values = {1, 2, 3};
  device_.copy_to_device(memory.address, values.data(), 12);
  device_.synchronize();
  const auto* read = static_cast<const float*>(mapped);
  EXPECT_EQ(std::vector<float>(read, read + 3), values);

  const auto permissions = [](const void* address) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      std::uintptr_t begin = 0, end = 0;
      std::array<char, 5> allowed{};
      if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, allowed.data()) == 3 &&
          begin <= reinterpret_cast<std::uintptr_t>(address) &&
          reinterpret_cast<std::uintptr_t>(address) < end)
        return std::string(allowed.data());
    }
    return std::string("none");
  };
  EXPECT_EQ(permissions(mapped), "r--s");
  EXPECT_EQ(permissions(memory.address), "rw-s");
  EXPECT_THROW(peer.map_shared(Descriptor(dup(memory.descriptor.get())), 4096), Error);
  peer.release_shared(mapped, memory.bytes);
  EXPECT_EQ(permissions(mapped), "none");
  device_.release_shared(memory.address, memory.bytes);
}

TEST(FakeDeviceMemoryTest, EndsAtTheLimit) {
  FakeDevice device({.memory = 10000});
  const Device::SharedMemory memory = device.create_shared(4097);
  EXPECT_EQ(device.devices()[0].bytes, 10000U);
  EXPECT_EQ(device.devices()[0].bytes_free, 1808U);
  EXPECT_THAT([&] { device.create_shared(10); },
              ThrowsMessage<Error>(AllOf(HasSubstr("4096 bytes are needed"), HasSubstr("1808 are free"))));
  EXPECT_THROW(device.create_shared(std::numeric_limits<std::size_t>::max()), Error);
  device.release_shared(memory.address, memory.bytes);
  EXPECT_EQ(device.create_shared(8192).bytes, 8192U);
}

TEST_F(FakeDeviceTest, KeepsAnError) {
  const DeviceContext failing{0, device_.new_stream()};
  const DeviceContext after{0, device_.new_stream()};
  std::vector<std::int32_t> integers(4, 1);
  std::vector<float> x(4, 1);
  {
    const DeviceScope scope(failing);
    device_.wait(flags_[0], 1);
    arithmetic_.scale(device_buffer(integers), 0.5);
    arithmetic_.scale(device_buffer(x), 2);
    EXPECT_EQ(device_.failure(), "");
    flags_[0] = 1;
    EXPECT_THAT([&] { device_.synchronize(); }, ThrowsMessage<Error>(HasSubstr("has failed")));
    EXPECT_NE(device_.failure(), "");
    EXPECT_THROW(arithmetic_.scale(device_buffer(x), 2), Error);
    EXPECT_THROW((void)arithmetic_.all_finite(device_buffer(x)), Error);
    EXPECT_THROW(device_.synchronize(), Error);
  }
  arithmetic_.scale(device_buffer(x), 3);
  device_.synchronize();
  EXPECT_EQ(x, std::vector<float>(4, 3));
  const DeviceScope scope(after);
  device_.order_after(failing);
  EXPECT_THROW(device_.synchronize(), Error);
}

TEST_F(FakeDeviceTest, RefusesWhatARealDeviceCannotUse) {
  Flag elsewhere = 0;
  std::vector<float> x(4), y(4);
  EXPECT_THROW(device_.wait(elsewhere, 1), InvalidArgument);
  EXPECT_THROW(device_.write(elsewhere, 1), InvalidArgument);
  EXPECT_THROW(device_.wait(flags_[0], kLost), InvalidArgument);
  EXPECT_THROW(device_.register_flags(&flags_[1], sizeof(Flag)), InvalidArgument);
  EXPECT_THROW(arithmetic_.combine(device_buffer(x),
                                   std::array{device_term(x, 0.5), device_message(y, 0.5, elsewhere, 1)}),
               InvalidArgument);
  EXPECT_THROW(arithmetic_.combine(device_buffer(x), std::array{device_message(y, 0.5, flags_[0], 1)}),
               InvalidArgument);
  EXPECT_THROW(arithmetic_.zero({DType::float32, x.data(), 4}), InvalidArgument);
  EXPECT_THROW(arithmetic_.combine(device_buffer(x), std::array{Term(y.data(), 1)}), InvalidArgument);
  EXPECT_THROW(device_.order_after({0, &elsewhere}), InvalidArgument);
  EXPECT_THROW(device_.order_after({1, nullptr}), InvalidArgument);
  device_.unregister_flags(flags_.data());
  EXPECT_THROW(device_.write(flags_[0], 1), InvalidArgument);
  device_.synchronize();
}

TEST_F(FakeDeviceTest, FreesMemoryAfterTheWorkThatUsesIt) {
  std::vector<float> result(100, 7);
  device_.wait(flags_[0], 1);
  {
    const std::shared_ptr<void> memory = arithmetic_.allocate(400);
    const Buffer buffer(DType::float32, memory.get(), 100, MemoryKind::cuda, nullptr);
    EXPECT_EQ(static_cast<const float*>(memory.get())[99], 0);
    const std::shared_ptr<bool> mark = arithmetic_.make_mark();
    result[3] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<Term> terms = {device_term(result, 1)};
    arithmetic_.sgd_update({terms, buffer, 1, buffer, {}, mark.get()}, {}, {}, true);
    arithmetic_.zero(buffer);
    arithmetic_.copy(device_buffer(result), buffer);
  }
  flags_[0] = 1;
  device_.synchronize();
  EXPECT_EQ(result, std::vector<float>(100));
}

TEST(FakeDeviceLifeTest, TheDestructorRunsReadyWorkAndEndsWaits) {
  std::array<Flag, 2> flags{};
  std::vector<float> x(10, 1), y(10, 1), z(10, 1);
  std::shared_ptr<void> memory;
  {
    FakeDevice device({.seed = 3});
    device.register_flags(flags.data(), sizeof(flags));
    memory = device.arithmetic().allocate(64);
    const DeviceContext blocked{0, device.new_stream()};
    const DeviceContext free{0, device.new_stream()};
    {
      const DeviceScope scope(blocked);
      device.arithmetic().scale(device_buffer(x), 2);
      device.wait(flags[0], 1);
      device.arithmetic().scale(device_buffer(x), 2);
    }
    {
      const DeviceScope scope(free);
      for (int i = 0; i < 10; ++i) device.arithmetic().scale(device_buffer(y), 2);
      device.write(flags[1], 1);
    }
    device.order_after(blocked);
    device.arithmetic().scale(device_buffer(z), 2);
  }
  EXPECT_EQ(x, std::vector<float>(10, 2));
  EXPECT_EQ(y, std::vector<float>(10, 1024));
  EXPECT_EQ(z, std::vector<float>(10, 1));
  EXPECT_EQ(flags[1].load(), 1U);
}

TEST(FakeDeviceLifeTest, InlineExecutionRunsWorkBeforeTheCallReturns) {
  std::array<Flag, 2> flags{};
  FakeDevice device({.seed = 5, .inline_execution = true});
  device.register_flags(flags.data(), sizeof(flags));
  std::vector<float> x(10, 1);
  device.arithmetic().scale(device_buffer(x), 2);
  EXPECT_EQ(x, std::vector<float>(10, 2));
  device.write(flags[0], 4);
  EXPECT_EQ(flags[0].load(), 4U);

  std::thread peer([&] {
    const DeviceScope scope({0, device.new_stream()});
    device.wait(flags[0], 5);
    device.arithmetic().scale(device_buffer(x), 2);
    device.write(flags[1], 1);
  });
  device.write(flags[0], 5);
  device.wait(flags[1], 1);
  EXPECT_EQ(x, std::vector<float>(10, 4));
  peer.join();

  device.order_after({0, device.new_stream()});
  EXPECT_EQ(device.arithmetic().sum_of_squares(device_buffer(x)), 160);
  std::vector<std::int32_t> integers(4, 1);
  EXPECT_THROW(device.arithmetic().scale(device_buffer(integers), 0.5), Error);
  EXPECT_THROW(device.synchronize(), Error);
}

// Returns 0 if `body` returns true in a fork of this process.
int forked_exit(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    bool fine = false;
    try {
      fine = body();
    } catch (...) {
    }
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(FakeDeviceLifeTest, StartsItsThreadsAfterAFork) {
  auto device = std::make_unique<FakeDevice>();
  std::vector<float> x(10, 1);
  EXPECT_EQ(forked_exit([&] {
              device->arithmetic().scale(device_buffer(x), 2);
              device->synchronize();
              return x[9] == 2;
            }),
            0);
  device->arithmetic().scale(device_buffer(x), 3);
  device->synchronize();
  EXPECT_EQ(x[9], 3);
  // Threads are not forked: the child gets an error, and can destroy the device.
  EXPECT_EQ(forked_exit([&] {
              try {
                device->arithmetic().scale(device_buffer(x), 2);
                return false;
              } catch (const Error&) {
                device.reset();
                return true;
              }
            }),
            0);
}

}  // namespace
}  // namespace starling::kernel
