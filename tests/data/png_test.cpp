#include "starling/data/png.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "data/data_files.h"

namespace starling::data {
namespace {

using testing::HasSubstr;

Bytes some_pixels(std::size_t count, std::size_t values = 256) {
  Bytes pixels(count);
  for (std::size_t i = 0; i < count; ++i)
    pixels[i] = static_cast<std::uint8_t>((i * i * 31 + i / 7) % values);
  return pixels;
}

TEST(PngTest, ReadsEveryFilter) {
  const Bytes pixels = some_pixels(7 * 11 * 3);
  const RgbImage image = read_png(png(7, 11, pixels), "image");
  EXPECT_EQ(image.width, 7u);
  EXPECT_EQ(image.height, 11u);
  EXPECT_EQ(image.pixels, pixels);
}

// With few distinct values, several neighbors are often equally near to the Paeth filter's prediction.
TEST(PngTest, ReadsTies) {
  const Bytes pixels = some_pixels(50 * 40 * 3, 5);
  EXPECT_EQ(read_png(png(50, 40, pixels), "image").pixels, pixels);
}

TEST(PngTest, EveryTruncationIsRefused) {
  const Bytes whole = png(3, 6, some_pixels(54));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(message_of([&] { read_png(std::span(whole).first(size), "image"); }), HasSubstr("image: "))
        << size;
}

TEST(PngTest, DamagedAndForeignFilesAreRefused) {
  const Bytes whole = png(3, 6, some_pixels(54));
  const auto refusal = [&](std::size_t at) {
    Bytes other = whole;
    other[at] ^= 1;
    return message_of([&] { read_png(other, "image"); });
  };
  EXPECT_EQ(refusal(1), "image: it is not a PNG file");
  EXPECT_EQ(refusal(45), "image: it is damaged: a checksum is wrong");
  // Flips every byte in turn.
  for (std::size_t at = 0; at < whole.size(); ++at) EXPECT_NE(refusal(at), "") << at;
  EXPECT_EQ(message_of([] { read_png(png(0, 0, {}), "image"); }), "image: it has no pixels");
}

// The header announces gigabytes; the file has only a few bytes.
TEST(PngTest, APromiseOfManyPixelsTakesNoMemory) {
  Bytes file = png(3, 6, some_pixels(54));
  // From the chunk's type on: 4 bytes, width, height, 5 bytes, the checksum
  constexpr std::size_t kHeader = 12;
  for (const std::size_t at : {kHeader + 4, kHeader + 8}) {
    file[at + 2] = 20'000 >> 8;
    file[at + 3] = 20'000 & 0xFF;
  }
  const auto sum = crc32(0, file.data() + kHeader, 17);
  for (std::size_t i = 0; i < 4; ++i) file[kHeader + 17 + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
  EXPECT_EQ(message_of([&] { read_png(file, "image"); }),
            "image: its header promises more pixels than it can hold");
}

}  // namespace
}  // namespace starling::data
