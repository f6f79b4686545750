#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

enum class Split { train, test };

/// Returns "train" or "test".
const char* to_string(Split split);

struct ImageShape {
  std::size_t channels = 1;
  std::size_t height = 0;
  std::size_t width = 0;

  std::size_t pixels() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Labeled images as bytes, as the files contain them. Networks usually need (pixel / 255 - mean) / deviation
/// with the channel's mean and deviation; callers do this per batch, so that a data set stays as small as its
/// file.
struct Dataset {
  std::string name;
  std::vector<std::uint8_t> images;  // size() * shape.pixels() bytes, row-major: image, channel, row, column
  std::vector<std::uint8_t> labels;  // below `classes`
  ImageShape shape;
  int classes = 0;
  std::vector<float> mean;       // of pixel / 255 over the training split, by channel
  std::vector<float> deviation;  // the standard deviation, by channel

  std::size_t size() const { return labels.size(); }
  /// Image i; throws InvalidArgument if i is out of range.
  std::span<const std::uint8_t> image(std::size_t index) const;

  /// Throws Error if members are inconsistent, and says which.
  void check() const;
};

/// The number of labels of each class.
std::vector<std::size_t> count_classes(std::span<const std::uint8_t> labels, int classes);

}  // namespace starling::data

namespace starling {
using data::Dataset;
using data::ImageShape;
using data::Split;
}  // namespace starling
