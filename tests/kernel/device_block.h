#pragma once

#include <vector>

#include "starling/kernel/arithmetic.h"
#include "starling/kernel/device.h"
#include "starling/kernel/transfer.h"

namespace starling::kernel {

/// Elements in one kind of memory; on a device they are written and read by the calling thread's stream.
template <typename E>
class MemoryBlock {
 public:
  MemoryBlock(std::size_t count, MemoryKind memory) : memory_(dtype_of<E>, count, memory) {}
  MemoryBlock(const std::vector<E>& values, MemoryKind memory) : MemoryBlock(values.size(), memory) {
    set(values);
  }

  Buffer buffer() const { return memory_.buffer(); }
  void set(const std::vector<E>& values) const {
    transfer(buffer(), {dtype_of<E>, values.data(), values.size()});
  }
  /// Waits for the work enqueued so far and returns the elements.
  std::vector<E> values() const {
    std::vector<E> found(buffer().count);
    transfer({dtype_of<E>, found.data(), found.size()}, buffer());
    return found;
  }

 private:
  OwnedBuffer memory_;
};

/// Elements in device memory.
template <typename E>
class DeviceBlock : public MemoryBlock<E> {
 public:
  explicit DeviceBlock(std::size_t count) : MemoryBlock<E>(count, MemoryKind::cuda) {}
  explicit DeviceBlock(const std::vector<E>& values) : MemoryBlock<E>(values, MemoryKind::cuda) {}
};

}  // namespace starling::kernel
