#include "starling/base/buffer.h"

#include <gmock/gmock.h>
#include <vector>

namespace starling {
namespace {

TEST(BufferTest, KnowsTypeCountAndBytes) {
  std::vector<double> x = {1, 2, 3, 4, 5};
  const Buffer buffer(DType::float64, x.data(), x.size());
  EXPECT_EQ(buffer.bytes(), 40U);
  EXPECT_TRUE(buffer.on_host());
  EXPECT_EQ(buffer.host<double>(), x.data());
  EXPECT_EQ(buffer.host_data(), static_cast<void*>(x.data()));
}

TEST(BufferTest, PartsShareMemoryAndKind) {
  std::vector<float> x = {1, 2, 3, 4, 5};
  const Buffer part = Buffer(DType::float32, x.data(), x.size()).part(2, 2);
  EXPECT_EQ(part.count, 2U);
  EXPECT_EQ(*part.host<float>(), 3);
  int stream = 0;
  const ConstBuffer device(DType::float32, x.data(), x.size(), MemoryKind::cuda, &stream);
  const ConstBuffer tail = device.part(4, 1);
  EXPECT_EQ(tail.memory, MemoryKind::cuda);
  EXPECT_EQ(tail.stream, &stream);
  EXPECT_EQ(tail.address(), static_cast<const void*>(x.data() + 4));
}

TEST(BufferTest, AReadOnlyBufferKeepsEverything) {
  std::vector<float> x(3);
  Buffer written(DType::float32, x.data(), x.size());
  written.shape = 7;
  const ConstBuffer read = written;
  EXPECT_EQ(read.shape, 7U);
  EXPECT_EQ(read.count, 3U);
  EXPECT_EQ(read.address(), written.address());
  std::vector<float> y(3);
  EXPECT_EQ(read.at<void>(y.data()).host<float>(), y.data());
  EXPECT_EQ(read.at<void>(y.data()).shape, 7U);
}

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(BufferTest, DeviceMemoryIsNotDereferenced) {
  const Buffer device(DType::float32, nullptr, 8, MemoryKind::cuda, nullptr);
  EXPECT_THAT(refusal([&] { device.host_data(); }), testing::HasSubstr("these are in CUDA memory"));
  EXPECT_THAT(refusal([&] { device.host<float>(); }), testing::HasSubstr("needs elements in host memory"));
  EXPECT_EQ(device.address(), nullptr);
}

TEST(BufferTest, ElementsHaveTheBuffersType) {
  float x = 0;
  EXPECT_THAT(refusal([&] { Buffer(DType::float32, &x, 1).host<double>(); }),
              testing::HasSubstr("elements are float32, not float64"));
}

}  // namespace
}  // namespace starling
