#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "starling/base/floors.h"
#include "starling/data/dataset.h"

namespace starling::data {

/// An array of bytes in the IDX format of MNIST: two zero bytes, the type of the elements, the number of
/// dimensions, the dimensions as big-endian 32-bit numbers, the elements with the last dimension fastest.
struct IdxArray {
  std::vector<std::size_t> dimensions;
  std::vector<std::uint8_t> values;
};

/// Reads a file, plain or gzip, with exactly this number of dimensions. Throws Error with the file, what was
/// found and what is valid if it is truncated, too long or not IDX.
IdxArray read_idx(const std::filesystem::path& path, std::size_t dimensions);

/// The layout that MNIST and its relatives share: train-images-idx3-ubyte, train-labels-idx1-ubyte and the
/// same for t10k, all of them plain or with the suffix .gz.
struct IdxSet {
  std::string name;
  ImageShape shape;
  int classes = 10;
  float mean = 0;
  float deviation = 1;
};

/// The names of a split's files, without a folder.
struct IdxNames {
  std::string images;
  std::string labels;
};
IdxNames idx_names(Split split);

Dataset load_idx(const IdxSet& set, Split split, const std::filesystem::path& folder);

}  // namespace starling::data
