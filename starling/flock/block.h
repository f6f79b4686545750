#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include "starling/base/buffer.h"

namespace starling::flock {

/// Contiguous elements: a span, a vector, an array, an Eigen vector (anything with data() and size()).
template <typename T>
concept ElementRange = requires(T& range) {
  {*range.data()};
  { range.size() } -> std::convertible_to<std::size_t>;
  requires is_element<std::remove_cvref_t<decltype(*range.data())>>;
};

template <typename T>
using ElementOf = std::remove_cvref_t<decltype(*std::declval<T&>().data())>;

template <typename E>
class Slot;
template <typename T>
inline constexpr bool is_slot = false;
template <typename E>
inline constexpr bool is_slot<Slot<E>> = true;

/// Elements that can be written through it: an lvalue vector, but also a temporary one, or a span.
template <typename T>
concept WritableRange = ElementRange<std::remove_reference_t<T>> && !is_slot<std::remove_cvref_t<T>> &&
                        !std::is_const_v<std::remove_reference_t<decltype(*std::declval<T&>().data())>>;
/// Elements that can only be read.
template <typename T>
concept ConstantRange = ElementRange<T> && !WritableRange<const T&>;

/// The elements of a range as a buffer in host memory.
template <ElementRange T>
ConstBuffer const_buffer_of(const T& range) {
  return {dtype_of<ElementOf<const T>>, range.data(), static_cast<std::size_t>(range.size())};
}
template <WritableRange T>
Buffer buffer_of(T& range) {
  return {dtype_of<ElementOf<T>>, range.data(), static_cast<std::size_t>(range.size())};
}

/// A writable copy: of the same type if `range` owns its elements, else (a view) a vector.
template <ElementRange T>
auto copy_of(const T& range) {
  if constexpr (std::ranges::borrowed_range<T>) {
    return std::vector<ElementOf<const T>>(range.data(), range.data() + range.size());
  } else if constexpr (requires { typename T::PlainObject; }) {
    return typename T::PlainObject(range);  // Eigen's maps and references are views, too
  } else {
    return T(range);
  }
}

inline Buffer as_buffer(const Buffer& block) {
  return block;
}
template <WritableRange T>
Buffer as_buffer(T& range) {
  return buffer_of(range);
}

/// Several buffers: a vector of vectors, of spans, of Buffers.
template <typename T>
concept RangeOfBuffers = requires(T& blocks) {
  as_buffer(*std::begin(blocks));
};

/// Returns a buffer for a result, of the input's type, once the number of its elements is known.
using Room = std::function<Buffer(std::size_t elements)>;

/// What happens to the weight of a neighbor average's lost message. All choices but `own` require that the
/// sender learns of the loss: on a fabric that loses messages, receivers send receipts.
enum class IfLost : std::uint8_t {
  own,       // the receiver uses its own block instead: an average stays an average
  returned,  // the sender keeps it: the sum over all ranks does not change
  mutual,    // the pair exchanges nothing in this step, in neither direction: both of these, on symmetric
             // weights
};

/// A block in an operation: its input, its output, and its offset in a message that carries several blocks.
struct Piece {
  ConstBuffer in;
  Buffer out;              // as many elements of in's type
  std::size_t offset = 0;  // bytes
  IfLost if_lost = IfLost::own;
};
using Pieces = std::vector<Piece>;

/// The blocks one after another in a message, each aligned to its element size.
template <typename Blocks>
Pieces pieces_of(const Blocks& blocks) {
  Pieces pieces;
  std::size_t end = 0;
  for (const Buffer& block : blocks) {
    const std::size_t element = size_of(block.dtype);
    pieces.push_back({block, block, (end + element - 1) / element * element});
    end = pieces.back().offset + pieces.back().in.bytes();
  }
  return pieces;
}

/// `detail` with the block's shape hashed into its upper half.
inline std::uint64_t with_shape(std::uint64_t detail, const ConstBuffer& block) {
  return detail ^ (std::uint64_t{block.shape} << 32);
}

/// A hash of the tensors of a message, which ranks must agree on; a single one is described by count, type
/// and shape already.
inline std::uint64_t layout_hash(std::uint64_t seed, const Pieces& pieces) {
  if (pieces.size() == 1) return with_shape(seed, pieces[0].in);
  std::uint64_t hash = seed;
  for (const Piece& piece : pieces)
    hash = with_shape(hash ^ (piece.in.count * 16 + static_cast<std::uint64_t>(piece.in.dtype)), piece.in) *
           0x9E3779B97F4A7C15u;
  return hash;
}

/// The bytes of a message that carries all pieces.
inline std::size_t message_bytes(const Pieces& pieces) {
  return pieces.empty() ? 0 : pieces.back().offset + pieces.back().in.bytes();
}
inline bool all_floating(const Pieces& pieces) {
  return std::ranges::all_of(pieces, [](const Piece& piece) { return is_floating(piece.in.dtype); });
}
inline std::size_t total_count(const Pieces& pieces) {
  std::size_t count = 0;
  for (const Piece& piece : pieces) count += piece.in.count;
  return count;
}

}  // namespace starling::flock

namespace starling {
using flock::buffer_of;
using flock::const_buffer_of;
}  // namespace starling
