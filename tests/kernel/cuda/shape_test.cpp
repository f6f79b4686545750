#include "starling/kernel/cuda/shape.h"

#include <gtest/gtest.h>

namespace starling::kernel::cuda {
namespace {

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

TEST(ShapeTest, TakesWordsWhereArraysAreAlignedAlike) {
  const Shape aligned = ShapeFinder(1024, 4).add(at(256), 4).add(at(4096), 4).shape();
  EXPECT_EQ(aligned.access, Access::words);
  EXPECT_EQ(aligned.shift, 0);
  EXPECT_EQ(aligned.blocks, 1U);
  // The word before the block contains 3 elements of other data, so the first thread has one element of the
  // block.
  const Shape shifted = ShapeFinder(1024, 4).add(at(256 + 12), 4).add(at(4096 + 12), 4).shape();
  EXPECT_EQ(shifted.access, Access::words);
  EXPECT_EQ(shifted.shift, 3);
  EXPECT_EQ(shifted.blocks, 2U);
}

TEST(ShapeTest, TakesElementsElsewhere) {
  const Shape shape = ShapeFinder(1025, 4).add(at(256), 4).add(at(4100), 4).shape();
  EXPECT_EQ(shape.access, Access::single);
  EXPECT_EQ(shape.shift, 0);
  EXPECT_EQ(shape.blocks, 2U);
}

TEST(ShapeTest, WordsOfShortElementsAreShort) {
  // For 4 elements, a word of 2-byte elements has 8 bytes, and that of 4-byte elements 16.
  const Shape shape = ShapeFinder(100, 4).add(at(256 + 8), 2).add(at(256 + 16), 4).shape();
  EXPECT_EQ(shape.access, Access::words);
  EXPECT_EQ(shape.shift, 0);
  EXPECT_EQ(ShapeFinder(100, 4).add(at(256 + 2), 2).add(at(256 + 4), 4).shape().shift, 1);
}

TEST(ShapeTest, StreamsLargeBlocks) {
  const std::size_t many = (std::size_t{32} << 20) / 8;
  EXPECT_EQ(ShapeFinder(many, 4).add(at(256), 4).add(at(512), 4).shape().access, Access::streaming);
  EXPECT_EQ(ShapeFinder(many - 1, 4).add(at(256), 4).add(at(512), 4).shape().access, Access::words);
  EXPECT_EQ(ShapeFinder(many, 4).add(at(256), 4).add(nullptr, 4).shape().access, Access::words);
  EXPECT_EQ(ShapeFinder(many, 4).add(at(256), 4).add(at(516), 4).shape().access, Access::single);
}

}  // namespace
}  // namespace starling::kernel::cuda
