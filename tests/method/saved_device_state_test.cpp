// Tests saved_state of starling/method and Block's states with x in device memory.
#include <gtest/gtest.h>
#include <map>

#include "kernel/fake_device.h"
#include "method/on_flock.h"
#include "record/folder.h"
#include "starling/kernel/transfer.h"
#include "starling/method/saved_state.h"

namespace starling::method {
namespace {

constexpr std::size_t kKept = 5;

/// A method with every kind of state: numbers, and vectors both in x's memory and on the host.
struct Keeper : Method {
  void adapt(Block& block) override {
    double& count = block.numbers("count")[0];
    ++block.host_state("flags", DType::uint8, 3).host<std::uint8_t>()[1];
    const Buffer sum = block.state("sum");
    block.combine(sum, {{sum, 1}, {block.x, ++count}});
    block.copy(block.make_state("before", DType::float64, kKept), block.x);
    const Buffer momentum = block.local_update->state()[0].data;
    block.combine(momentum, {{momentum, 0.9}, {sum, 1}});
    block.combine(block.x, {{block.x, 1}, {momentum, -0.01}});
  }
};

/// An optimizer whose state is in the same memory as x.
class MomentumAlone final : public Update {
 public:
  explicit MomentumAlone(MemoryKind memory) : m_(DType::float32, kKept, memory), steps_(DType::int64, 1) {}
  std::string name() const override { return "momentum"; }
  void apply(const UpdatePass&, std::span<const Segment>) override {}
  std::vector<NamedState> state() override { return {{"m", m_.buffer()}, {"steps", steps_.buffer()}}; }

 private:
  OwnedBuffer m_, steps_;
};

struct KeeperRun {
  OwnedBuffer x, gradient;
  Driver driver;

  KeeperRun(const Flock& flock, const std::string& name, MemoryKind memory)
      : x(DType::float32, kKept, memory),
        gradient(DType::float32, kKept, memory),
        driver(std::make_shared<Keeper>(), blocks(flock, name)) {}

  void take_steps(int count) {
    for (int i = 0; i < count; ++i) driver.finish();
  }
  /// Everything that a checkpoint holds, and x.
  SavedParts saved() {
    SavedParts parts;
    parts.add("x", x.buffer());
    save(driver, parts);
    return parts;
  }

 private:
  std::vector<std::unique_ptr<Block>> blocks(const Flock& flock, const std::string& name) {
    std::vector<std::unique_ptr<Block>> all;
    all.push_back(std::make_unique<Block>(
        "x", x.buffer(), gradient.buffer(), std::vector<Segment>{{0, kKept}},
        std::make_unique<MomentumAlone>(x.buffer().memory), make_flock_channel(flock, name, {})));
    return all;
  }
};

std::map<std::string, std::vector<std::byte>> contents_of(const SavedParts& parts) {
  std::map<std::string, std::vector<std::byte>> all;
  for (const StatePart& part : parts.parts()) {
    std::vector<std::byte>& bytes = all[part.name + " of " + part.type];
    bytes.resize(part.bytes.size());
    const MemoryKind memory = part.device ? MemoryKind::cuda : MemoryKind::host;
    kernel::transfer({DType::uint8, bytes.data(), bytes.size()},
                     {DType::uint8, part.bytes.data(), part.bytes.size(), memory, nullptr});
  }
  return all;
}

void check_resumed(Flock& flock, MemoryKind saved_in, MemoryKind resumed_in) {
  const RecordFolder folder;
  const std::string path = folder.path("state");
  KeeperRun straight(flock, "straight", saved_in);
  std::vector<float> start = {1, -2, 3, 0.5F, 0.1F};
  kernel::transfer(straight.x.buffer(), buffer_of(start));
  straight.take_steps(3);
  const auto saved = contents_of(straight.saved());
  write_checkpoint_file(path, {}, straight.saved().parts());

  KeeperRun resumed(flock, "resumed", resumed_in);
  resumed.take_steps(1);  // overwritten by the restored state
  const CheckpointFile file(path);
  file.read_into("x", std::as_writable_bytes(std::span(start)));
  kernel::transfer(resumed.x.buffer(), buffer_of(start));
  restore(resumed.driver, file);
  require(contents_of(resumed.saved()) == saved, "what was restored");

  straight.take_steps(2);
  resumed.take_steps(2);
  require(contents_of(resumed.saved()) == contents_of(straight.saved()), "two steps later");
  Block& block = resumed.driver[0];
  require(block.numbers("count")[0] == 5, "a number");
  require(block.host_state("flags", DType::uint8, 3).on_host(), "a vector on the host");
  require(block.state("sum").memory == resumed_in, "a vector like x");
  require(block.make_state("before", DType::float64, kKept).memory == resumed_in, "a vector where x is");
}

TEST(SavedDeviceState, ContinuesBitForBitWhereverItWasSaved) {
  kernel::set_device(std::make_shared<kernel::FakeDevice>(kernel::FakeDeviceOptions{.seed = 3}));
  for (const MemoryKind saved_in : {MemoryKind::host, MemoryKind::cuda})
    for (const MemoryKind resumed_in : {MemoryKind::host, MemoryKind::cuda}) {
      const auto ends = launchers()[0].run(1, [&](const std::shared_ptr<Fabric>& fabric) {
        Flock flock(fabric);
        check_resumed(flock, saved_in, resumed_in);
      });
      EXPECT_TRUE(ends[0].ok) << name(saved_in) << " to " << name(resumed_in) << ": " << ends[0].message;
    }
  kernel::set_device(nullptr);
}

}  // namespace
}  // namespace starling::method
