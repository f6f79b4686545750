#include "starling/fabric/local/heap.h"

#include <algorithm>
#include <bit>

#include "starling/fabric/local/layout.h"

namespace starling::fabric::local {
namespace {

constexpr std::uint64_t kGrowth = std::uint64_t{1}
                                  << 20;  // memory is reserved in steps of at least this size

}  // namespace

// The index of the free list for pieces of this size, or -1.
int Heap::free_list_of(std::uint64_t bytes) {
  if (bytes > (std::uint64_t{1} << kLargest)) return -1;
  if (bytes <= (std::uint64_t{1} << kSmallest)) return 0;
  return static_cast<int>(std::bit_width(bytes - 1)) - kSmallest;
}

std::uint64_t Heap::rounded(std::uint64_t bytes) {
  const int list = free_list_of(bytes);
  return list >= 0 ? std::uint64_t{1} << (list + kSmallest) : aligned(bytes);
}

bool Heap::has_small(std::uint64_t bytes) const {
  const int list = free_list_of(bytes);
  return list >= 0 && !small_[static_cast<std::size_t>(list)].empty();
}

std::uint64_t Heap::allocate(std::uint64_t bytes, bool may_grow) {
  const std::uint64_t size = rounded(bytes);
  if (used_ + size > limit_) return 0;
  std::uint64_t offset = 0;
  if (has_small(bytes)) {
    auto& list = small_[static_cast<std::size_t>(free_list_of(bytes))];
    offset = list.back();
    list.pop_back();
  } else {
    offset = carve(size, may_grow);
    if (offset == 0) return 0;
  }
  used_ += size;
  return offset;
}

std::uint64_t Heap::carve(std::uint64_t size, bool may_grow) {
  if (const auto fit = by_size_.lower_bound(size); fit != by_size_.end()) {
    const auto piece = free_.find(fit->second);
    const std::uint64_t offset = piece->first;
    const std::uint64_t rest = piece->second - size;
    remove_free(piece);
    if (rest > 0) add_free(offset + size, rest);
    return offset;
  }
  const std::uint64_t offset = end_;
  if (offset + size > region_.reserved()) {
    if (!may_grow) return 0;
    region_.reserve(std::max(offset + size, region_.reserved() + kGrowth));
  }
  end_ += size;
  return offset;
}

void Heap::free(std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t size = rounded(bytes);
  used_ -= size;
  if (const int list = free_list_of(bytes); list >= 0) {
    small_[static_cast<std::size_t>(list)].push_back(offset);
    return;
  }
  std::uint64_t start = offset;
  auto after = free_.lower_bound(start);
  if (after != free_.end() && after->first == start + size) {
    size += after->second;
    remove_free(after++);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == start) {
      start = before->first;
      size += before->second;
      remove_free(before);
    }
  }
  if (start + size == end_) {
    end_ = start;  // the last piece shrinks the used range
  } else {
    add_free(start, size);
  }
}

void Heap::add_free(std::uint64_t offset, std::uint64_t size) {
  free_[offset] = size;
  by_size_.emplace(size, offset);
}

void Heap::remove_free(std::map<std::uint64_t, std::uint64_t>::iterator piece) {
  const auto [first, last] = by_size_.equal_range(piece->second);
  for (auto it = first; it != last; ++it)
    if (it->second == piece->first) {
      by_size_.erase(it);
      break;
    }
  free_.erase(piece);
}

}  // namespace starling::fabric::local
