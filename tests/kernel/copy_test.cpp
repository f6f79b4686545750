#include "starling/kernel/copy.h"

#include <gtest/gtest.h>
#include <vector>

namespace starling::kernel {
namespace {

TEST(CopyTest, CopiesEverySizeAndAlignmentAndNothingElse) {
  const std::size_t large = (std::size_t{32} << 20) + 100;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, large, large + 77})
    for (const std::size_t shift : {0U, 1U, 13U}) {
      std::vector<unsigned char> from(bytes + 64);
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 251);
      std::vector<unsigned char> to(bytes + 64, 0xAA);
      copy_bytes(to.data() + shift, from.data() + 3, bytes);
      EXPECT_TRUE(std::equal(from.begin() + 3, from.begin() + 3 + static_cast<std::ptrdiff_t>(bytes),
                             to.begin() + static_cast<std::ptrdiff_t>(shift)))
          << bytes << " bytes, shifted by " << shift;
      for (std::size_t i = 0; i < shift; ++i) EXPECT_EQ(to[i], 0xAA);
      for (std::size_t i = shift + bytes; i < to.size(); ++i) EXPECT_EQ(to[i], 0xAA);
    }
}

}  // namespace
}  // namespace starling::kernel
