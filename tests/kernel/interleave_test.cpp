#include "starling/kernel/interleave.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <vector>

#include "kernel/blocks.h"
#include "starling/base/error.h"

namespace starling::kernel {
namespace {

class InterleaveTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(InterleaveTest);

template <typename E>
void deinterleave_and_interleave() {
  for (const std::size_t trees : {1U, 2U, 3U, 8U})
    for (const std::size_t count : {0U, 1U, 2U, 7U, 64U, 1001U}) {
      std::vector<E> whole(count);
      for (std::size_t i = 0; i < count; ++i) whole[i] = static_cast<E>(i * 3 + 1);
      const std::size_t longest = (count + trees - 1) / trees;
      std::vector<E> memory(trees * (longest + 1), E{99});
      std::vector<std::byte*> parts;
      for (std::size_t t = 0; t < trees; ++t)
        parts.push_back(reinterpret_cast<std::byte*>(memory.data() + t * (longest + 1)));
      deinterleave(parts, whole.data(), count, sizeof(E));
      for (std::size_t t = 0; t < trees; ++t)
        for (std::size_t i = 0; i <= longest; ++i)
          ASSERT_EQ(memory[t * (longest + 1) + i], i * trees + t < count ? whole[i * trees + t] : E{99})
              << count << " to " << trees;
      std::vector<E> back(count + 1, E{99});
      interleave(back.data(), parts, count, sizeof(E));
      ASSERT_TRUE(std::equal(whole.begin(), whole.end(), back.begin())) << count << " from " << trees;
      ASSERT_EQ(back[count], E{99});
    }
}

TEST_P(InterleaveTest, SplitsAndJoinsElementsInTurn) {
  deinterleave_and_interleave<std::uint16_t>();
  deinterleave_and_interleave<float>();
  deinterleave_and_interleave<double>();
  float x = 0;
  EXPECT_THROW(deinterleave({}, &x, 1, 3), InvalidArgument);
  EXPECT_THROW(interleave(&x, {}, 1, 1), InvalidArgument);
}

}  // namespace
}  // namespace starling::kernel
