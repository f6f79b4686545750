#include "starling/data/synthetic.h"

#include <algorithm>
#include <span>
#include <vector>

#include "starling/base/error.h"
#include "starling/base/random.h"

namespace starling::data {
namespace {

constexpr int kSyntheticClasses = 10;
constexpr int kMostShift = 8;
constexpr int kCell = 4;   // pixels between the random values, which are interpolated
constexpr int kFull = 64;  // the denominator of strengths

// Sums of four bytes are nearly normal, with variance 4 * 256^2 / 12, which is 148 squared.
int nearly_normal(std::uint32_t bytes) {
  int sum = 0;
  for (int shift = 0; shift < 32; shift += 8) sum += static_cast<int>((bytes >> shift) & 255U);
  return sum - 510;
}

// A square of values, row by row.
using Field = std::vector<int>;

// A smooth random field of side x side: random values every kCell pixels, interpolated linearly.
Field smooth_field(int side, Random& random) {
  const int in_row = (side + kCell - 1) / kCell + 1;
  Field grid(static_cast<std::size_t>(in_row * in_row));
  for (int& value : grid) value = nearly_normal(static_cast<std::uint32_t>(random.next()));
  Field field(static_cast<std::size_t>(side * side));
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x) {
      const int* corner = grid.data() + y / kCell * in_row + x / kCell;
      const int right = x % kCell;
      const int down = y % kCell;
      const int above = corner[0] * (kCell - right) + corner[1] * right;
      const int below = corner[in_row] * (kCell - right) + corner[in_row + 1] * right;
      field[static_cast<std::size_t>(y * side + x)] =
          (above * (kCell - down) + below * down) / (kCell * kCell);
    }
  return field;
}

// The strengths, in units of a field's spread, of the smooth background and the noise that are added to each
// pattern; pixels are around 128.
constexpr int kVeil = 8;
constexpr int kNoise = 8;
constexpr int kLeastStrength = 24;
constexpr int kMostStrength = 40;

// Draws an image of a class with one pattern per channel.
void draw_image(std::span<const Field> patterns, int side, Random& random, std::uint8_t* image) {
  const auto between = [&](int least, int most) {
    return least + static_cast<int>(random.below(static_cast<std::uint32_t>(most - least + 1)));
  };
  const int down = between(0, 2 * kMostShift);
  const int right = between(0, 2 * kMostShift);
  const int strength = between(kLeastStrength, kMostStrength);
  const int in_row = side + 2 * kMostShift;
  for (const Field& pattern : patterns) {
    const Field veil = smooth_field(side, random);
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) {
        const auto from = static_cast<std::size_t>((y + down) * in_row + x + right);
        const int noise = nearly_normal(static_cast<std::uint32_t>(random.next() >> 32));
        const int sum =
            strength * pattern[from] + kVeil * veil[static_cast<std::size_t>(y * side + x)] + kNoise * noise;
        *image++ = static_cast<std::uint8_t>(std::clamp(128 + sum / kFull, 0, 255));
      }
  }
}

}  // namespace

Dataset make_synthetic(Split split, const SyntheticOptions& options) {
  const auto side = static_cast<int>(options.size);
  std::vector<std::vector<Field>> patterns(kSyntheticClasses);  // of each class, by channel
  for (std::uint64_t c = 0; c < kSyntheticClasses; ++c)
    for (std::uint64_t channel = 0; channel < options.channels; ++channel) {
      Random random(options.seed, c + kSyntheticClasses * channel, stream::kSynthetic);
      patterns[c].push_back(smooth_field(side + 2 * kMostShift, random));
    }
  Dataset data;
  data.name = "synthetic";
  data.shape = {options.channels, options.size, options.size};
  data.classes = kSyntheticClasses;
  data.mean.assign(options.channels, 0.5F);
  data.deviation.assign(options.channels, 0.21F);
  const std::size_t count = split == Split::train ? options.train : options.test;
  data.labels.resize(count);
  data.images.resize(count * data.shape.pixels());
  for (std::size_t i = 0; i < count; ++i) {
    Random random(options.seed, i, stream::kSynthetic + (split == Split::train ? 1 : 2));
    data.labels[i] = static_cast<std::uint8_t>(random.below(kSyntheticClasses));
    draw_image(patterns[data.labels[i]], side, random, data.images.data() + i * data.shape.pixels());
  }
  return data;
}

DataSource synthetic_source() {
  return {.name = "synthetic",
          .summary = "generated patterns, gray or colored: need no files and no network",
          .parameters = {{"seed", "1", "of the patterns and of the images"},
                         {"train", "4000", "number of training images"},
                         {"test", "1000", "number of test images"},
                         {"channels", "1", "1: gray; 3: colored"},
                         {"size", "28", "pixels of a side"}},
          .load =
              [](const Parameters& parameters, Split split, const std::filesystem::path& /*none*/) {
                const auto count = [&](const char* name, std::int64_t least, std::int64_t most) {
                  return static_cast<std::size_t>(parameters.integer(name, least, most));
                };
                const std::size_t channels = count("channels", 1, 3);
                if (channels == 2)
                  throw InvalidArgument(
                      "synthetic: channels=2 is not valid; images have 1 (gray) or 3 (colored)");
                return make_synthetic(split, {.seed = parameters.seed(),
                                              .train = count("train", 1, 10'000'000),
                                              .test = count("test", 1, 10'000'000),
                                              .channels = channels,
                                              .size = count("size", 8, 256)});
              },
          .recipe = std::nullopt};
}

}  // namespace starling::data
