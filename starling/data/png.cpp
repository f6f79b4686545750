#include "starling/data/png.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>
#include <zlib.h>

#include "starling/base/error.h"

namespace starling::data {
namespace {

constexpr std::array<std::uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr std::size_t kChannels = 3;
constexpr std::size_t kMostPixelBytes = std::size_t{1} << 32;  // a header with more is damaged

std::size_t number(std::span<const std::uint8_t> bytes) {
  return std::size_t{bytes[0]} << 24 | std::size_t{bytes[1]} << 16 | std::size_t{bytes[2]} << 8 | bytes[3];
}

// The one of the three neighbors left, above and both that is nearest to left + above - both.
int paeth(int left, int above, int both) {
  const int guess = left + above - both;
  const int to_left = std::abs(guess - left), to_above = std::abs(guess - above),
            to_both = std::abs(guess - both);
  if (to_left <= to_above && to_left <= to_both) return left;
  return to_above <= to_both ? above : both;
}

class Reader {
 public:
  Reader(std::span<const std::uint8_t> bytes, const std::string& name) : rest_(bytes), name_(name) {}

  RgbImage read() {
    demand(
        rest_.size() >= kSignature.size() && std::equal(kSignature.begin(), kSignature.end(), rest_.begin()),
        "it is not a PNG file");
    rest_ = rest_.subspan(kSignature.size());
    std::vector<std::uint8_t> packed;
    for (std::string_view kind; kind != "IEND";) {
      const auto content = chunk(kind);
      if (kind == "IHDR") header(content);
      if (kind == "IDAT") packed.insert(packed.end(), content.begin(), content.end());
    }
    demand(image_.width > 0 && image_.height > 0, "it has no pixels");
    // zlib compresses at most about a thousand equal bytes into one.
    demand((1 + image_.width * kChannels) * image_.height <= 1100 * (packed.size() + 64),
           "its header promises more pixels than it can hold");
    std::vector<std::uint8_t> rows((1 + image_.width * kChannels) * image_.height);
    uLongf size = rows.size();
    demand(uncompress(rows.data(), &size, packed.data(), packed.size()) == Z_OK && size == rows.size(),
           "its pixels are damaged");
    unfilter(rows);
    return std::move(image_);
  }

 private:
  void demand(bool valid, const std::string& what) const {
    if (!valid) throw Error(fmt::format("{}: {}", name_, what));
  }

  // Reads the next chunk: the length of its content, its kind, the content, and a checksum of the last two.
  std::span<const std::uint8_t> chunk(std::string_view& kind) {
    demand(rest_.size() >= 12 && number(rest_) <= rest_.size() - 12, "it is cut off");
    const std::size_t size = number(rest_);
    const auto checked = rest_.subspan(4, size + 4);
    demand(crc32(0, checked.data(), static_cast<uInt>(checked.size())) == number(rest_.subspan(8 + size)),
           "it is damaged: a checksum is wrong");
    rest_ = rest_.subspan(12 + size);
    kind = {reinterpret_cast<const char*>(checked.data()), 4};
    return checked.subspan(4);
  }

  void header(std::span<const std::uint8_t> content) {
    demand(content.size() == 13, "its header is damaged");
    image_.width = number(content);
    image_.height = number(content.subspan(4));
    demand(image_.width * image_.height <= kMostPixelBytes / (2 * kChannels), "it is too large");
    constexpr std::array<std::uint8_t, 5> kRgb = {8, 2, 0, 0,
                                                  0};  // bits, color type, compression, filter, interlace
    demand(std::equal(kRgb.begin(), kRgb.end(), content.begin() + 8), "valid is RGB, 8 bits, not interlaced");
  }

  // A row starts with the number of the filter by which its bytes were encoded.
  void unfilter(std::span<const std::uint8_t> rows) {
    const std::size_t length = image_.width * kChannels;
    image_.pixels.resize(length * image_.height);
    const std::vector<std::uint8_t> black(length, 0);
    for (std::size_t y = 0; y < image_.height; ++y) {
      const std::uint8_t* from = rows.data() + y * (length + 1);
      const std::uint8_t filter = *from++;
      demand(filter <= 4, fmt::format("row {} has the filter {}; valid are 0 to 4", y, filter));
      std::uint8_t* to = image_.pixels.data() + y * length;
      const std::uint8_t* above = y == 0 ? black.data() : to - length;
      for (std::size_t i = 0; i < length; ++i) {
        const int left = i < kChannels ? 0 : to[i - kChannels];
        const int both = i < kChannels ? 0 : above[i - kChannels];
        const std::array<int, 5> guesses = {0, left, above[i], (left + above[i]) / 2,
                                            paeth(left, above[i], both)};
        to[i] = static_cast<std::uint8_t>(from[i] + guesses[filter]);
      }
    }
  }

  std::span<const std::uint8_t> rest_;
  const std::string& name_;
  RgbImage image_;
};

}  // namespace

RgbImage read_png(std::span<const std::uint8_t> bytes, const std::string& name) {
  return Reader(bytes, name).read();
}

}  // namespace starling::data
