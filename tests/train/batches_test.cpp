#include "starling/train/batches.h"

#include <gtest/gtest.h>

namespace starling::train {
namespace {

Dataset colored_dataset() {
  Dataset data;
  data.name = "colored";
  data.shape = {.channels = 3, .height = 5, .width = 4};
  data.classes = 7;
  data.mean = {0.25F, 0.5F, 0.75F};
  data.deviation = {0.2F, 0.3F, 0.7F};
  for (std::size_t i = 0; i < 11; ++i) {
    data.labels.push_back(static_cast<std::uint8_t>(i * 3 % 7));
    for (std::size_t k = 0; k < data.shape.pixels(); ++k)
      data.images.push_back(static_cast<std::uint8_t>(i * 37 + k * 11));
  }
  data.check();
  return data;
}

TEST(Batches, OnADeviceEqualThoseOfTheHost) {
  const Dataset data = colored_dataset();
  const DeviceDataset there(data, torch::kCPU);
  for (const std::vector<std::uint32_t>& samples :
       {std::vector<std::uint32_t>{0}, {10, 3, 3, 7}, std::vector<std::uint32_t>{}}) {
    const Batch expected = make_batch(data, samples);
    const Batch got = there.batch(to_tensor(samples));
    EXPECT_TRUE(torch::equal(got.images, expected.images)) << samples.size() << " samples";
    EXPECT_TRUE(torch::equal(got.labels, expected.labels)) << samples.size() << " samples";
  }
}

TEST(Batches, AreNormalized) {
  const Dataset data = colored_dataset();
  const Batch batch = make_batch(data, std::vector<std::uint32_t>{2});
  const double pixel = data.images[2 * data.shape.pixels() + 20];  // the first pixel of the second channel
  EXPECT_NEAR(batch.images[0][1][0][0].item<double>(), (pixel / 255 - 0.5) / 0.3, 1e-6);
  EXPECT_EQ(batch.labels[0].item<std::int64_t>(), 6);
}

}  // namespace
}  // namespace starling::train
