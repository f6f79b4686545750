#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "starling/base/floors.h"
#include "starling/data/dataset.h"

namespace starling::data {

/// A text for character language models: bytes, numbered by their position in the alphabet of the bytes that
/// occur. A sample is a window of `block` characters and, for each of them, the next character; windows do
/// not overlap. The last tenth of the text is the test split.
class TextWindows {
 public:
  /// Throws InvalidArgument, with the text and a valid choice, if a split has no window.
  TextWindows(std::string name, std::span<const std::uint8_t> bytes, std::size_t block);

  const std::string& name() const { return name_; }
  /// The bytes that occur anywhere in the text, ascending.
  const std::vector<std::uint8_t>& alphabet() const { return alphabet_; }
  std::size_t block() const { return block_; }
  /// The number of windows in a split.
  std::size_t size(Split split) const;
  /// Window `index` of a split: block + 1 symbols below alphabet().size(); the last one is only a target.
  std::span<const std::uint8_t> window(Split split, std::size_t index) const;

 private:
  std::string name_;
  std::size_t block_;
  std::vector<std::uint8_t> alphabet_;
  std::vector<std::uint8_t> symbols_;
  std::size_t test_begin_ = 0;
};

/// Reads a file, plain or gzip; throws Error if it cannot be read.
TextWindows read_text(const std::filesystem::path& file, std::size_t block);

}  // namespace starling::data

namespace starling {
using data::read_text;
using data::TextWindows;
}  // namespace starling
