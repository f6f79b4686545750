#include "starling/kernel/await_terms.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>

#include "kernel/fake_device.h"

namespace starling::kernel {
namespace {

TEST(AwaitTermsTest, LeavesOutLostOnes) {
  std::array<Flag, 4> flags{};
  const auto device = std::make_shared<FakeDevice>(FakeDeviceOptions{.seed = 3});
  device->register_flags(flags.data(), sizeof(flags));
  set_device(device);
  float value = 0;
  std::vector<Term> terms(4);
  for (std::size_t t = 0; t < terms.size(); ++t) {
    terms[t] = {ConstBuffer(DType::float32, &value, 1, MemoryKind::cuda, nullptr), 0.25};
    if (t == 0) continue;
    terms[t].flag = &flags[t];
    terms[t].number = 7;
  }
  flags[1] = 8;
  flags[2] = kLost | 6;  // the sender died before it had sent this message
  flags[3] = kLost | 7;
  const std::vector<Term> there = await_terms(terms);
  ASSERT_EQ(there.size(), 3U);
  EXPECT_EQ(there[0].weight, 0.5);
  for (const Term& term : there) EXPECT_EQ(term.flag, nullptr);
  // Lost terms only.
  EXPECT_TRUE(await_terms(std::span(terms).subspan(2, 1)).empty());
  set_device(nullptr);
}

}  // namespace
}  // namespace starling::kernel
