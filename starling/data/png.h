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
  std::vector<std::uint8_t> pixels;  // by rows; red, green and blue of each pixel
};

/// The kind of PNG that packages carry data sets as: RGB, 8 bits, not interlaced. Others, and damaged ones,
/// are refused with an Error that names `name`.
RgbImage read_png(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace starling::data
