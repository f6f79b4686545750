#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "starling/base/buffer.h"

namespace starling::fabric {

/// Outgoing memory: written in place, then posted to any number of ranks. After it is posted it is read-only;
/// this rank can read it until this object is destroyed, and readers keep the memory as long as they need it.
class Outgoing {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void give_back(void* handle) noexcept = 0;
  };

  Outgoing() = default;
  Outgoing(Owner* owner, void* handle, std::span<std::byte> bytes, MemoryKind memory = MemoryKind::host)
      : owner_(owner), handle_(handle), bytes_(bytes), memory_(memory) {}
  Outgoing(Outgoing&& other) noexcept { swap(other); }
  Outgoing& operator=(Outgoing&& other) noexcept {
    Outgoing(std::move(other)).swap(*this);
    return *this;
  }
  ~Outgoing() {
    if (owner_ != nullptr) owner_->give_back(handle_);
  }

  /// Throws InvalidArgument unless the memory is host memory.
  std::span<std::byte> bytes() const {
    if (memory_ != MemoryKind::host) throw_not_host_memory(memory_);
    return bytes_;
  }
  std::size_t size() const { return bytes_.size(); }
  MemoryKind memory() const { return memory_; }
  /// `count` elements from byte `offset` on, in any kind of memory; an empty buffer if there is no memory.
  Buffer buffer(DType dtype, std::size_t count, std::size_t offset = 0) const {
    if (owner_ == nullptr) return {};
    return {dtype, bytes_.data() + offset, count, memory_, nullptr};
  }
  explicit operator bool() const { return owner_ != nullptr; }
  /// For fabrics.
  void* handle() const { return handle_; }

 private:
  void swap(Outgoing& other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(handle_, other.handle_);
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
  }
  Owner* owner_ = nullptr;
  void* handle_ = nullptr;
  std::span<std::byte> bytes_;
  MemoryKind memory_ = MemoryKind::host;
};

/// A range of outgoing memory, or all of it, to be posted.
class OutgoingRange {
 public:
  // Implicit: the whole memory is a range, too.
  OutgoingRange(const Outgoing& message) : OutgoingRange(message, 0, message.size()) {}
  OutgoingRange(const Outgoing& message, std::size_t offset, std::size_t bytes)
      : handle_(message.handle()), offset_(offset), elements_(message.buffer(DType::uint8, bytes, offset)) {}

  /// Throws InvalidArgument unless the memory is host memory.
  std::span<const std::byte> bytes() const { return {elements_.host_bytes(), elements_.count}; }
  std::size_t size() const { return elements_.count; }
  MemoryKind memory() const { return elements_.memory; }
  /// For fabrics.
  void* handle() const { return handle_; }
  std::size_t offset() const { return offset_; }

 private:
  void* handle_;
  std::size_t offset_;
  ConstBuffer elements_;
};

}  // namespace starling::fabric
