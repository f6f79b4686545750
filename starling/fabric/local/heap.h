#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "starling/fabric/local/region.h"

namespace starling::fabric::local {

/// The allocator of a rank's shared region: small pieces come from free lists of equal size, larger ones by
/// best fit. Its bookkeeping is in private memory, so that other processes cannot corrupt it. Not
/// thread-safe.
class Heap {
 public:
  Heap(Region& region, std::uint64_t start, std::uint64_t limit)
      : region_(region), end_(start), limit_(limit) {}

  /// Returns an offset aligned to 64, or 0 if the limit would be exceeded or the region would have to grow
  /// and may not. Throws Error if the machine has no memory left.
  std::uint64_t allocate(std::uint64_t bytes, bool may_grow);
  /// `bytes` must be the allocated size.
  void free(std::uint64_t offset, std::uint64_t bytes);
  /// Whether the free list for this size has a piece.
  bool has_small(std::uint64_t bytes) const;
  std::uint64_t used() const { return used_; }
  std::uint64_t limit() const { return limit_; }

 private:
  static constexpr int kSmallest = 6;  // 64 bytes
  static constexpr int kLargest = 15;  // 32 KiB; above, best fit
  static int free_list_of(std::uint64_t bytes);
  static std::uint64_t rounded(std::uint64_t bytes);

  std::uint64_t carve(std::uint64_t size, bool may_grow);
  void add_free(std::uint64_t offset, std::uint64_t size);
  void remove_free(std::map<std::uint64_t, std::uint64_t>::iterator piece);

  Region& region_;
  std::uint64_t end_;    // the end of all memory ever allocated
  std::uint64_t limit_;  // of bytes in use
  std::uint64_t used_ = 0;
  std::array<std::vector<std::uint64_t>, kLargest - kSmallest + 1> small_;
  std::map<std::uint64_t, std::uint64_t> free_;          // offset -> size, neighbors merged
  std::multimap<std::uint64_t, std::uint64_t> by_size_;  // size -> offset
};

}  // namespace starling::fabric::local
