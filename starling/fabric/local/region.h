#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace starling::local {

/// A memfd mapped into this process: nothing to clean up after SIGKILL, no limit of /dev/shm.
class Region {
 public:
  /// Address space per region; memory is used only as far as it was reserved.
  static constexpr std::uint64_t kSpan = std::uint64_t{1} << 36;

  /// A new region; throws Error with the system's reason.
  static Region create(const std::string& label);
  /// A region that another process sent; takes the descriptor.
  static Region adopt(int descriptor);

  Region() = default;
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  int descriptor() const { return descriptor_; }
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  template <typename T>
  T* as(std::uint64_t offset) const {
    return reinterpret_cast<T*>(at(offset));
  }

  /// Makes sure that [0, bytes) has memory behind it: a full machine is an Error here and not a SIGBUS later.
  void reserve(std::uint64_t bytes);
  std::uint64_t reserved() const { return reserved_; }

 private:
  Region(int descriptor, std::byte* base) : descriptor_(descriptor), base_(base) {}

  int descriptor_ = -1;
  std::byte* base_ = nullptr;
  std::uint64_t reserved_ = 0;
};

}  // namespace starling::local
