#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace starling::data {

enum class Split { train, test };

/// "train" or "test".
const char* to_string(Split split);

struct ImageShape {
  std::size_t channels = 1;
  std::size_t height = 0;
  std::size_t width = 0;

  std::size_t pixels() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Labeled images as they lie in the files: bytes, not scaled. What a network usually wants is
/// (pixel / 255 - mean) / deviation with its channel's mean and deviation; that step is the user's, on the
/// batch at hand, so that a data set stays as small as its file.
struct Dataset {
  std::string name;
  std::vector<std::uint8_t> images;  // size() * shape.pixels(), row-major: image, channel, row, column
  std::vector<std::uint8_t> labels;  // below `classes`
  ImageShape shape;
  int classes = 0;
  std::vector<float> mean;       // of pixel / 255 over the training split, by channel
  std::vector<float> deviation;  // the same, its standard deviation

  std::size_t size() const { return labels.size(); }
  /// Image i; throws InvalidArgument if i is out of range.
  std::span<const std::uint8_t> image(std::size_t index) const;

  /// Throws Error naming what does not fit together.
  void check() const;
};

/// How many of `labels` there are of each class.
std::vector<std::size_t> count_classes(std::span<const std::uint8_t> labels, int classes);

}  // namespace starling::data

namespace starling {
using data::Dataset;
using data::ImageShape;
using data::Split;
}  // namespace starling
