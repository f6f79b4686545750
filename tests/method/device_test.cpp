// Tests starling/method/block.h, update.h and flock_channel.h with blocks in device memory (a FakeDevice):
// the results have the same bits as on the host.
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "base/test_name.h"
#include "flock/reference.h"
#include "kernel/device_block.h"
#include "method/on_flock.h"
#include "record/folder.h"
#include "starling/codec/registry.h"
#include "starling/fabric/device_messages.h"
#include "starling/record/timeline_reader.h"

namespace starling::method {
namespace {

using kernel::DeviceBlock;

/// A model and its gradient on the device, and their driver.
template <typename T>
struct OnDevice {
  DeviceBlock<T> x, gradient;
  Driver driver;

  OnDevice(const Flock& flock, const std::vector<T>& start, const DriverOptions& options, std::size_t parts,
           std::size_t parameters = 0)
      : x(start),
        gradient(start.size()),
        driver(drive_in_parts(flock, x.buffer(), gradient.buffer(), options, parts, parameters)) {}
};

void run_on_device(Rank n, const RankBody& body) {
  for (const Launcher& launcher : device_launchers()) {
    const auto ends = launcher.run(n, body);
    for (std::size_t r = 0; r < ends.size(); ++r)
      EXPECT_TRUE(ends[r].ok) << launcher.name << ", rank " << r << ": " << ends[r].message;
  }
}

struct DeviceCase {
  std::string method;
  std::string topology;
  std::string optimizer;
  std::string message = "float32";
  Step steps = 50;
};

void PrintTo(const DeviceCase& one, std::ostream* out) {
  *out << one.method << " on " << one.topology << " with " << one.optimizer << " in " << one.message;
}

template <typename T>
void train_on_both(Flock& flock, const DeviceCase& one) {
  constexpr std::size_t kParts = 3, kParameters = 5;
  const Problem problem{.n = flock.size(), .count = 301};
  const DriverOptions options{
      .method = one.method, .topology = one.topology, .optimizer = one.optimizer, .message = one.message};
  Flock for_host = flock.split(0), for_device = flock.split(0);
  const bool asynchronous = make_method(one.method)->asynchronous();
  // Methods that wait for nobody are kept in order.
  const auto finish = [&](Driver& driver) {
    if (!asynchronous) return driver.finish();
    for (Rank turn = 0; turn < flock.size(); ++turn) {
      flock.barrier("in order");
      if (turn == flock.rank()) driver.finish();
    }
    flock.barrier("in order");
  };
  auto x = problem.start_of<T>(flock.rank());
  std::vector<T> gradient(problem.count), device_gradient(problem.count);
  Driver host = drive_in_parts(for_host, buffer_of(x), buffer_of(gradient), options, kParts, kParameters);
  OnDevice<T> device(for_device, x, options, kParts, kParameters);
  for (Step step = 0; step < one.steps; ++step) {
    for (std::size_t block = 0; block < host.size(); ++block)
      host[block].skipped = device.driver[block].skipped = step % 11 == 10 && flock.rank() == 1;
    host.begin();
    problem.gradient(flock.rank(), x.data(), gradient.data());
    finish(host);
    device.driver.begin();
    problem.gradient(flock.rank(), device.x.values().data(), device_gradient.data());
    device.gradient.set(device_gradient);
    finish(device.driver);
    // Of CECA's two blocks x is the one that the driver gives.
    for (std::size_t block = 0; block < host.size(); ++block) {
      const Buffer model = device.driver.method().model(device.driver[block]);
      std::vector<T> found(model.count);
      kernel::transfer(buffer_of(found), model);
      const auto* expected = host.method().model(host[block]).template host<T>();
      require(same_bits(found, std::vector<T>(expected, expected + model.count)),
              fmt::format("step {}, block {}: not the host's bits", step, block));
    }
  }
  device.driver.settle();
  host.settle();
}

class DeviceMethodTest : public testing::TestWithParam<DeviceCase> {};

TEST_P(DeviceMethodTest, TrainsWithTheBitsOfTheHost) {
  run_on_device(4, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    train_on_both<float>(flock, GetParam());
    train_on_both<double>(flock, GetParam());
  });
}

std::string case_name(const testing::TestParamInfo<DeviceCase>& test) {
  return test_name(test.param.method + "_" + test.param.topology + "_" + test.param.optimizer + "_" +
                   test.param.message);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceMethodTest,
                         testing::Values(DeviceCase{"dsgd-awc", "ring", "momentum(lr=0.05)"},
                                         DeviceCase{"dsgd-awc", "exponential", "adam(lr=0.05)"},
                                         DeviceCase{"dsgd-awc", "one-peer-exponential",
                                                    "sgd(lr=0.1,weight_decay=0.01)"},
                                         DeviceCase{"dsgd-awc", "complete", "nesterov(lr=0.05)"},
                                         DeviceCase{"dsgd-atc", "ring", "adamw(lr=0.05,weight_decay=0.1)"},
                                         DeviceCase{"dsgd-atc", "one-peer-exponential", "momentum(lr=0.05)"},
                                         DeviceCase{"dsgd-atc", "hierarchical(ring,local=2)", "sgd(lr=0.1)"},
                                         DeviceCase{"dsgd-atc", "ceca", "momentum(lr=0.05)"},
                                         DeviceCase{"accum-adam(s=2)", "ring", "adam(lr=0.05)"}),
                         case_name);

// Methods over windows, whose values lie in device memory, too.
INSTANTIATE_TEST_SUITE_P(Windows, DeviceMethodTest,
                         testing::Values(DeviceCase{"win-put", "ring", "momentum(lr=0.05)", "float32", 12},
                                         DeviceCase{"async-push-sum", "exponential", "sgd(lr=0.05)",
                                                    "float32", 12},
                                         DeviceCase{"ad-psgd", "ring", "sgd(lr=0.05)", "float32", 12}),
                         case_name);

// Blocks of float32 in shorter messages; those of float64 travel as they are.
INSTANTIATE_TEST_SUITE_P(Messages, DeviceMethodTest,
                         testing::Values(DeviceCase{"dsgd-awc", "ring", "momentum(lr=0.05)", "bfloat16"},
                                         DeviceCase{"dsgd-awc", "one-peer-exponential", "adam(lr=0.05)",
                                                    "int8"},
                                         DeviceCase{"dsgd-atc", "ring", "momentum(lr=0.05)", "float16"},
                                         DeviceCase{"dsgd-atc", "exponential", "sgd(lr=0.1)", "int8"},
                                         DeviceCase{"exact-diffusion", "ring", "sgd(lr=0.05)", "bfloat16"},
                                         DeviceCase{"allreduce", "ring", "momentum(lr=0.05)", "bfloat16"},
                                         DeviceCase{"local-sgd(tau=3)", "ring", "sgd(lr=0.05)", "float16"},
                                         DeviceCase{"exact-diffusion", "ring", "sgd(lr=0.05)", "int8"}),
                         case_name);

std::vector<DeviceCase> compressed_cases() {
  std::vector<DeviceCase> all = {
      {"low-precision-ring", "ring", "momentum(lr=0.05)"}, {"bytegrad", "ring", "momentum(lr=0.05)"},
      {"qsgd(feedback=true)", "ring", "sgd(lr=0.05)"},     {"sign-sgd", "ring", "sgd(lr=0.01)"},
      {"qadam(warmup=5)", "ring", "adam(lr=0.05)"},        {"powersgd(rank=1)", "ring", "momentum(lr=0.05)"}};
  for (const CodecFamily& family : codec_families()) {
    if (family.name == "vote") continue;  // signs only, for sign-sgd
    all.push_back({"choco(codec=" + family.name + ")", "ring", "sgd(lr=0.05)"});
    all.push_back({"compressed-allreduce(codec=" + family.name + ")", "ring", "momentum(lr=0.05)"});
  }
  for (DeviceCase& one : all) one.steps = 13;
  return all;
}
INSTANTIATE_TEST_SUITE_P(Codecs, DeviceMethodTest, testing::ValuesIn(compressed_cases()), case_name);

TEST(DeviceBlockTest, AwcNeedsTwoSlotsPerBlock) {
  run_on_device(3, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    constexpr std::size_t kBlocks = 3;
    OnDevice<float> device(flock, std::vector<float>(900'000, 1),
                           {.method = "dsgd-awc", .topology = "ring", .optimizer = "momentum"}, kBlocks);
    for (int step = 0; step < 40; ++step) {
      device.driver.begin();
      device.driver.finish();
      const auto usage = fabric->device_messages()->usage();
      require(usage.slots <= 2 * kBlocks, fmt::format("{} slots in step {}", usage.slots, step));
    }
    device.driver.settle();
    require(fabric->device_messages()->usage().slots == 2 * kBlocks, "two slots for each");
  });
}

TEST(DeviceBlockTest, TimelinesHaveTheUpdatePassesOfTheDevice) {
  const RecordFolder folder;
  const Variable on("STARLING_TIMELINE", folder.path("t"));
  constexpr std::size_t kBlocks = 2;
  constexpr Step kSteps = 3;
  const auto ends = device_launchers()[1].run(2, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    OnDevice<float> device(flock, std::vector<float>(1000, 1),
                           {.method = "dsgd-awc", .topology = "ring", .optimizer = "momentum"}, kBlocks);
    for (Step step = 0; step < kSteps; ++step) {
      device.driver.begin();
      device.driver.finish();
    }
    device.driver.settle();
  });
  for (const RankEnd& end : ends) ASSERT_TRUE(end.ok) << end.message;
  for (const TimelinePart& part : read_timeline(folder.path("t")).parts) {
    std::map<Step, std::size_t> updates;
    std::size_t averages = 0, averages_of_host = 0;
    for (const TimelineEvent& event : part.events) {
      if (event.kind == RecordKind::update) {
        EXPECT_EQ(event.device, 0);
        EXPECT_TRUE(part.names[event.name].ends_with("/update")) << part.names[event.name];
        ++updates[event.step];
      } else if (event.kind == RecordKind::average) {
        ++(event.device == 0 ? averages : averages_of_host);
      }
    }
    EXPECT_EQ(updates, (std::map<Step, std::size_t>{{0, kBlocks}, {1, kBlocks}, {2, kBlocks}}));
    EXPECT_EQ(averages, averages_of_host);
    EXPECT_GE(averages, kBlocks * kSteps);
  }
}

TEST(DeviceBlockTest, NonfiniteResultsAreReportedWithTheNextUpdate) {
  run_on_device(2, [](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(20s);
    OnDevice<float> device(flock, {1, 2, 3}, {.method = "dsgd-awc", .topology = "ring", .optimizer = "sgd"},
                           1);
    int told = 0;
    device.driver[0].on_nonfinite = [&](ConstBuffer) { ++told; };
    const float infinite = std::numeric_limits<float>::infinity();
    for (int step = 0; step < 4; ++step) {
      device.gradient.set({0, step == 1 ? infinite : 0, 0});
      device.driver.finish();
      kernel::device().synchronize();
    }
    require(told == 2, fmt::format("told {} times", told));  // an infinite value stays infinite
  });
}

}  // namespace
}  // namespace starling::method
