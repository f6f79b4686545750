#include "starling/kernel/transfer.h"

#include <gtest/gtest.h>
#include <vector>

#include "kernel/fake_device.h"

namespace starling::kernel {
namespace {

class TransferTest : public testing::Test {
 protected:
  TransferTest() { set_device(std::make_shared<FakeDevice>(FakeDeviceOptions{.seed = 1})); }
  ~TransferTest() override { set_device(nullptr); }
};

TEST_F(TransferTest, GoesFromAnyMemoryToAnyOther) {
  std::vector<float> in = {1, 2, 3}, out(3), doubled(3);
  const Buffer start(DType::float32, in.data(), 3), end(DType::float32, out.data(), 3);
  const OwnedBuffer first(DType::float32, 3, MemoryKind::cuda), second(DType::float32, 3, MemoryKind::cuda);
  transfer(first.buffer(), start);
  in = {7, 8, 9};  // the transfer has already read it
  transfer(second.buffer(), first.buffer());
  transfer(end, second.buffer());
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3}));
  // The transfer runs after the work that is already on the stream.
  device().arithmetic().scale(second.buffer(), 2);
  transfer({DType::float32, doubled.data(), 3}, second.buffer());
  EXPECT_EQ(doubled, (std::vector<float>{2, 4, 6}));
  transfer(end, start);
  EXPECT_EQ(out, in);
}

}  // namespace
}  // namespace starling::kernel
