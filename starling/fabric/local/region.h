#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::fabric::local {

/// Shared memory of one rank: a memfd mapped into this process. It needs no cleanup after SIGKILL and does
/// not count against the size of /dev/shm.
class Region {
 public:
  /// Address space per region; memory is used only as far as it is reserved.
  static constexpr std::uint64_t kSpan = std::uint64_t{1} << 36;

  /// A new region; throws Error with the system's reason.
  static Region create(const std::string& label);
  /// Maps a region that another process sent. Throws Error if it is not a region, or if its owner could
  /// shrink it, which would make reads raise SIGBUS.
  static Region adopt(Descriptor descriptor);

  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  int descriptor() const { return descriptor_.get(); }
  /// The address of an offset.
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  template <typename T>
  T* as(std::uint64_t offset) const {
    return reinterpret_cast<T*>(at(offset));
  }

  /// Whether [offset, offset + bytes) is inside the region; check this for every offset that another process
  /// wrote.
  static constexpr bool contains(std::uint64_t offset, std::uint64_t bytes) {
    return offset <= kSpan && bytes <= kSpan - offset;
  }

  /// Reserves memory for [0, bytes). Throws Error if the machine has none left, which would otherwise be a
  /// SIGBUS at the first access.
  void reserve(std::uint64_t bytes);
  std::uint64_t reserved() const { return reserved_; }

 private:
  Region(Descriptor descriptor, std::byte* base) : descriptor_(std::move(descriptor)), base_(base) {}

  Descriptor descriptor_;
  std::byte* base_ = nullptr;
  std::uint64_t reserved_ = 0;
};

/// Throws Error: `rank` wrote an impossible value into its shared memory; `what` describes it.
[[noreturn]] void refuse_memory_of(Rank rank, const std::string& what);

/// Throws Error if a process limit (RLIMIT_FSIZE, RLIMIT_AS) is too low for the shared regions of `ranks`
/// ranks, and names the limit, its value and the value needed. Exceeding RLIMIT_FSIZE would kill the process.
void check_memory_limits(Rank ranks);

/// The text of a failed attempt to open a descriptor: the system's reason; for EMFILE also the limit and how
/// many open files a rendezvous of `ranks` ranks needs.
std::string open_failure(int reason, Rank ranks);

}  // namespace starling::fabric::local
