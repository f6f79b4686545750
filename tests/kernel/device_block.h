#pragma once

#include <vector>

#include "starling/kernel/arithmetic.h"
#include "starling/kernel/device.h"
#include "starling/kernel/transfer.h"

namespace starling::kernel {

/// Elements in device memory, written and read on the calling thread's stream.
template <typename E>
class DeviceBlock {
 public:
  explicit DeviceBlock(std::size_t count) : memory_(dtype_of<E>, count, MemoryKind::cuda) {}
  explicit DeviceBlock(const std::vector<E>& values) : DeviceBlock(values.size()) { set(values); }

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

}  // namespace starling::kernel
