#include "starling/data/synthetic.h"

#include <algorithm>
#include <array>

#include "starling/base/random.h"

namespace starling::data {
namespace {

constexpr int kSide = 28;
constexpr int kSyntheticClasses = 10;
constexpr int kMostShift = 8;
constexpr int kCell = 4;  // pixels between the random values, which are interpolated
constexpr int kPatternSide = kSide + 2 * kMostShift;
constexpr int kFull = 64;  // the denominator of strengths

// Sums of four bytes are nearly normal, with variance 4 * 256^2 / 12, which is 148 squared.
int nearly_normal(std::uint32_t bytes) {
  int sum = 0;
  for (int shift = 0; shift < 32; shift += 8) sum += static_cast<int>((bytes >> shift) & 255U);
  return sum - 510;
}

// A smooth random field of Side x Side: random values every kCell pixels, interpolated linearly.
template <int Side>
std::array<int, Side * Side> smooth_field(Random& random) {
  constexpr int kGrid = (Side + kCell - 1) / kCell + 1;
  std::array<int, kGrid * kGrid> grid;
  for (int& value : grid) value = nearly_normal(static_cast<std::uint32_t>(random.next()));
  std::array<int, Side * Side> field;
  for (int y = 0; y < Side; ++y)
    for (int x = 0; x < Side; ++x) {
      const int* corner = grid.data() + y / kCell * kGrid + x / kCell;
      const int right = x % kCell;
      const int down = y % kCell;
      const int above = corner[0] * (kCell - right) + corner[1] * right;
      const int below = corner[kGrid] * (kCell - right) + corner[kGrid + 1] * right;
      field[static_cast<std::size_t>(y * Side + x)] =
          (above * (kCell - down) + below * down) / (kCell * kCell);
    }
  return field;
}

using Pattern = std::array<int, kPatternSide * kPatternSide>;

// The strengths, in units of a field's spread, of the smooth background and the noise that are added to each
// pattern; pixels are around 128.
constexpr int kVeil = 8;
constexpr int kNoise = 8;
constexpr int kLeastStrength = 24;
constexpr int kMostStrength = 40;

void draw_image(const Pattern& pattern, Random& random, std::uint8_t* image) {
  const auto between = [&](int least, int most) {
    return least + static_cast<int>(random.below(static_cast<std::uint32_t>(most - least + 1)));
  };
  const int down = between(0, 2 * kMostShift);
  const int right = between(0, 2 * kMostShift);
  const int strength = between(kLeastStrength, kMostStrength);
  const auto veil = smooth_field<kSide>(random);
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x) {
      const auto at = static_cast<std::size_t>(y * kSide + x);
      const auto from = static_cast<std::size_t>((y + down) * kPatternSide + x + right);
      const int noise = nearly_normal(static_cast<std::uint32_t>(random.next() >> 32));
      const int sum = strength * pattern[from] + kVeil * veil[at] + kNoise * noise;
      image[at] = static_cast<std::uint8_t>(std::clamp(128 + sum / kFull, 0, 255));
    }
}

}  // namespace

Dataset make_synthetic(Split split, const SyntheticOptions& options) {
  std::vector<Pattern> patterns;
  for (std::uint64_t c = 0; c < kSyntheticClasses; ++c) {
    Random random(options.seed, c, stream::kSynthetic);
    patterns.push_back(smooth_field<kPatternSide>(random));
  }
  Dataset data;
  data.name = "synthetic";
  data.shape = {1, kSide, kSide};
  data.classes = kSyntheticClasses;
  data.mean = {0.5F};
  data.deviation = {0.21F};
  const std::size_t count = split == Split::train ? options.train : options.test;
  data.labels.resize(count);
  data.images.resize(count * data.shape.pixels());
  for (std::size_t i = 0; i < count; ++i) {
    Random random(options.seed, i, stream::kSynthetic + (split == Split::train ? 1 : 2));
    data.labels[i] = static_cast<std::uint8_t>(random.below(kSyntheticClasses));
    draw_image(patterns[data.labels[i]], random, data.images.data() + i * data.shape.pixels());
  }
  return data;
}

DataSource synthetic_source() {
  return {.name = "synthetic",
          .summary = "generated patterns, 28 x 28, gray: need no files and no network",
          .parameters = {{"seed", "1", "of the patterns and of the images"},
                         {"train", "4000", "number of training images"},
                         {"test", "1000", "number of test images"}},
          .load =
              [](const Parameters& parameters, Split split, const std::filesystem::path& /*none*/) {
                const auto count = [&](const char* name) {
                  return static_cast<std::size_t>(parameters.integer(name, 1, 10'000'000));
                };
                return make_synthetic(split, {parameters.seed(), count("train"), count("test")});
              },
          .recipe = std::nullopt};
}

}  // namespace starling::data
