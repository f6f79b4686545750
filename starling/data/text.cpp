#include "starling/data/text.h"

#include <array>
#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/data/packed_file.h"

namespace starling::data {

TextWindows::TextWindows(std::string name, std::span<const std::uint8_t> bytes, std::size_t block)
    : name_(std::move(name)), block_(block), test_begin_(bytes.size() - bytes.size() / 10) {
  if (block == 0) throw InvalidArgument("a window of a text has at least one character, not block=0");
  if (bytes.size() / 10 < block + 1)
    throw InvalidArgument(
        fmt::format("{} has {} characters: too short. Windows of block={} need at least {}, for the last "
                    "tenth is kept to test on",
                    name_, bytes.size(), block, 10 * (block + 1)));
  std::array<bool, 256> occurs{};
  for (const std::uint8_t byte : bytes) occurs[byte] = true;
  std::array<std::uint8_t, 256> place{};
  for (std::size_t byte = 0; byte < occurs.size(); ++byte) {
    if (!occurs[byte]) continue;
    place[byte] = static_cast<std::uint8_t>(alphabet_.size());
    alphabet_.push_back(static_cast<std::uint8_t>(byte));
  }
  symbols_.reserve(bytes.size());
  for (const std::uint8_t byte : bytes) symbols_.push_back(place[byte]);
}

std::size_t TextWindows::size(Split split) const {
  // The last character of a split is only a target.
  const std::size_t characters = split == Split::train ? test_begin_ : symbols_.size() - test_begin_;
  return characters == 0 ? 0 : (characters - 1) / block_;
}

std::span<const std::uint8_t> TextWindows::window(Split split, std::size_t index) const {
  if (index >= size(split))
    throw InvalidArgument(
        fmt::format("{} has no window {} among {} to {}", name_, index, size(split), to_string(split)));
  const std::size_t begin = (split == Split::train ? 0 : test_begin_) + index * block_;
  return std::span(symbols_).subspan(begin, block_ + 1);
}

TextWindows read_text(const std::filesystem::path& file, std::size_t block) {
  return {file.string(), read_packed(file), block};
}

}  // namespace starling::data
