#include "starling/fabric/local/heap.h"

#include <algorithm>

#include "starling/fabric/local/layout.h"

namespace starling::local {
namespace {

constexpr std::uint64_t kGrowth = std::uint64_t{1} << 20;  // memory is reserved in steps of at least this

}  // namespace

std::uint64_t Heap::allocate(std::uint64_t bytes, bool may_grow) {
  const std::uint64_t size = aligned(std::max<std::uint64_t>(bytes, 1));
  if (used_ + size > limit_) return 0;
  std::uint64_t offset = 0;
  if (const auto fit = by_size_.lower_bound(size); fit != by_size_.end()) {
    const auto piece = free_.find(fit->second);
    offset = piece->first;
    const std::uint64_t rest = piece->second - size;
    remove_free(piece);
    if (rest > 0) add_free(offset + size, rest);
  } else {
    offset = end_;
    if (offset + size > region_.reserved() && !may_grow) return 0;
    if (offset + size > region_.reserved())
      region_.reserve(std::max(offset + size, region_.reserved() + kGrowth));
    end_ += size;
  }
  taken_[offset] = size;
  used_ += size;
  return offset;
}

void Heap::free(std::uint64_t offset) {
  const auto piece = taken_.find(offset);
  std::uint64_t start = offset;
  std::uint64_t size = piece->second;
  used_ -= size;
  taken_.erase(piece);
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
    end_ = start;  // the last piece goes back to what was never handed out
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

}  // namespace starling::local
