#include "starling/data/dataset.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::data {

const char* to_string(Split split) {
  return split == Split::train ? "train" : "test";
}

std::span<const std::uint8_t> Dataset::image(std::size_t index) const {
  if (index >= size()) throw InvalidArgument(fmt::format("{} has no image {} among {}", name, index, size()));
  return std::span(images).subspan(index * shape.pixels(), shape.pixels());
}

void Dataset::check() const {
  const auto demand = [&](bool valid, const std::string& what) {
    if (!valid) throw Error(fmt::format("data set {}: {}", name, what));
  };
  demand(shape.pixels() > 0,
         fmt::format("images of {} x {} x {} have no pixels", shape.channels, shape.height, shape.width));
  demand(images.size() == size() * shape.pixels(),
         fmt::format("{} labels need {} bytes of images, there are {}", size(), size() * shape.pixels(),
                     images.size()));
  demand(classes >= 1 && classes <= 256, fmt::format("{} classes; valid are 1 to 256", classes));
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [&](std::uint8_t label) { return label >= classes; });
  demand(wrong == labels.end(),
         fmt::format("label {} of image {} is not below {}, the number of classes",
                     wrong == labels.end() ? 0 : *wrong, wrong - labels.begin(), classes));
  demand(mean.size() == shape.channels && deviation.size() == shape.channels,
         fmt::format("{} means and {} deviations for {} channels", mean.size(), deviation.size(),
                     shape.channels));
  demand(std::all_of(deviation.begin(), deviation.end(), [](float d) { return d > 0; }),
         "a deviation is not positive");
}

std::vector<std::size_t> count_classes(std::span<const std::uint8_t> labels, int classes) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(classes), 0);
  for (const std::uint8_t label : labels) {
    if (label >= counts.size())
      throw InvalidArgument(fmt::format("label {} is not below {}, the number of classes", label, classes));
    ++counts[label];
  }
  return counts;
}

}  // namespace starling::data
