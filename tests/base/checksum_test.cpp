#include "starling/base/checksum.h"

#include <gtest/gtest.h>
#include <vector>

namespace starling {
namespace {

TEST(ChecksumTest, IsXxh3WhateverThePieces) {
  EXPECT_EQ(checksum_text(checksum_of({})), "2d06800538d394c2");  // as its authors publish it
  EXPECT_EQ(checksum_text(0x1F), "000000000000001f");
  std::vector<std::byte> bytes(5000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i);
  for (const std::size_t piece : {1U, 63U, 64U, 1000U, 5000U}) {
    Checksum checksum;
    for (std::size_t i = 0; i < bytes.size(); i += piece)
      checksum.add(std::span(bytes).subspan(i, std::min(piece, bytes.size() - i)));
    EXPECT_EQ(checksum.value(), checksum_of(bytes)) << piece;
  }
}

}  // namespace
}  // namespace starling
