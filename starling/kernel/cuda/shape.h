#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace starling::kernel::cuda {

/// Threads per block.
inline constexpr int kBlock = 256;

/// The blocks of a launch, each of which handles `of_block` elements.
constexpr unsigned blocks_for(std::size_t count, std::size_t of_block = kBlock) {
  return static_cast<unsigned>((count + of_block - 1) / of_block);
}

/// How a kernel accesses its arrays: element by element if their alignments differ, otherwise in words of 16
/// bytes; `streaming` if they are too large for the cache anyway.
enum class Access { single, words, streaming };

/// The elements per thread and array: 16 bytes.
template <typename E>
inline constexpr int kLanesOf = 16 / static_cast<int>(sizeof(E));

/// The launch of an element-wise kernel.
struct Shape {
  Access access;
  unsigned blocks;
  int shift;  // elements that the first thread lacks, so that the words of the others are aligned

  /// The index into tables of kernels.
  std::size_t index() const { return static_cast<std::size_t>(access); }
};

/// Finds the shape of a kernel over arrays of `count` elements; each thread takes `lanes` of them.
class ShapeFinder {
 public:
  ShapeFinder(std::size_t count, int lanes) : count_(count), lanes_(lanes) {}

  /// Adds an array; a null address adds nothing.
  ShapeFinder& add(const void* address, std::size_t element) {
    if (address == nullptr) return *this;
    bytes_ += count_ * element;
    const std::size_t word = std::min<std::size_t>(16, element * static_cast<std::size_t>(lanes_));
    for (int shift = 0; shift < lanes_; ++shift)
      if ((reinterpret_cast<std::uintptr_t>(address) - static_cast<std::size_t>(shift) * element) % word != 0)
        shifts_ &= ~(1U << shift);
    return *this;
  }

  Shape shape() const {
    const std::size_t per_block = static_cast<std::size_t>(kBlock * lanes_);
    Shape shape{Access::single, 0, 0};
    for (int shift = lanes_ - 1; shift >= 0; --shift)
      if ((shifts_ >> shift & 1U) != 0) {
        shape.access = bytes_ >= kStreamedBytes ? Access::streaming : Access::words;
        shape.shift = shift;
      }
    shape.blocks =
        static_cast<unsigned>((count_ + static_cast<std::size_t>(shape.shift) + per_block - 1) / per_block);
    return shape;
  }

 private:
  static constexpr std::size_t kStreamedBytes = std::size_t{32} << 20;
  std::size_t count_;
  int lanes_;
  std::size_t bytes_ = 0;
  // bit s: all arrays are aligned from s elements before their start
  std::uint32_t shifts_ = ~std::uint32_t{0};
};

}  // namespace starling::kernel::cuda
