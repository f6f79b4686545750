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

/// A text as a language model of characters sees it: bytes, numbered by their place in the alphabet of those
/// that occur. A sample is a window of `block` characters and, for each, the one after it; windows do not
/// overlap. The last tenth of the text is the test split.
class TextWindows {
 public:
  /// Throws InvalidArgument, naming the text and what would do, where a split has not one window.
  TextWindows(std::string name, std::span<const std::uint8_t> bytes, std::size_t block);

  const std::string& name() const { return name_; }
  /// The bytes that occur anywhere in the text, ascending.
  const std::vector<std::uint8_t>& alphabet() const { return alphabet_; }
  std::size_t block() const { return block_; }
  /// How many windows a split has.
  std::size_t size(Split split) const;
  /// Window `index` of a split: block + 1 symbols, below alphabet().size(), the last being only a target.
  std::span<const std::uint8_t> window(Split split, std::size_t index) const;

 private:
  std::string name_;
  std::size_t block_;
  std::vector<std::uint8_t> alphabet_;
  std::vector<std::uint8_t> symbols_;
  std::size_t test_begin_ = 0;
};

/// Of a file, plain or gzip; throws Error where it cannot be read.
TextWindows read_text(const std::filesystem::path& file, std::size_t block);

}  // namespace starling::data

namespace starling {
using data::read_text;
using data::TextWindows;
}  // namespace starling
