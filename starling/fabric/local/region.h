#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "starling/base/types.h"
#include "starling/fabric/local/descriptor.h"

namespace starling::local {

/// A memfd mapped into this process: nothing to clean up after SIGKILL, no limit of /dev/shm.
class Region {
 public:
  /// Address space per region; memory is used only as far as it was reserved.
  static constexpr std::uint64_t kSpan = std::uint64_t{1} << 36;

  /// A new region; throws Error with the system's reason.
  static Region create(const std::string& label);
  /// A region that another process sent. Throws Error where it is none, or where its owner could shrink it:
  /// what lies behind its end cannot be read without SIGBUS.
  static Region adopt(Descriptor descriptor);

  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  int descriptor() const { return descriptor_.get(); }
  /// Of an offset that this process has allocated.
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  template <typename T>
  T* as(std::uint64_t offset) const {
    return reinterpret_cast<T*>(at(offset));
  }

  /// Whether [offset, offset + bytes) lies inside: what another process wrote may be anything.
  static constexpr bool contains(std::uint64_t offset, std::uint64_t bytes) {
    return offset <= kSpan && bytes <= kSpan - offset;
  }

  /// Makes sure that [0, bytes) has memory behind it: a full machine is an Error here and not a SIGBUS later.
  void reserve(std::uint64_t bytes);
  std::uint64_t reserved() const { return reserved_; }

 private:
  Region(Descriptor descriptor, std::byte* base) : descriptor_(std::move(descriptor)), base_(base) {}

  Descriptor descriptor_;
  std::byte* base_ = nullptr;
  std::uint64_t reserved_ = 0;
};

/// Throws Error: what `rank` wrote into shared memory cannot be. `what` says which, after its name.
[[noreturn]] void refuse_memory_of(Rank rank, const std::string& what);

}  // namespace starling::local
