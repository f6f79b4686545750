#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling::data {

struct RgbImage {
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<std::uint8_t> pixels;  // row by row; red, green and blue of each pixel
};

/// Reads the kind of PNG that packages use for data sets: RGB, 8 bits, not interlaced. Throws Error with
/// `name` for other or damaged ones.
RgbImage read_png(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace starling::data
