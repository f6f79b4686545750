#pragma once

#include <type_traits>

#include "starling/kernel/arithmetic.h"
#include "starling/kernel/transfer.h"

namespace starling::kernel {

/// A buffer's elements in the memory in which code works: the buffer itself, or a copy of one that lies
/// elsewhere. Copies wait for the calling thread's stream.
template <typename Void>
class Staged {
 public:
  /// `reads`: whether the elements are wanted, or only room for others.
  explicit Staged(const BasicBuffer<Void>& given, MemoryKind memory = MemoryKind::host, bool reads = true)
      : given_(given), buffer_(given) {
    if (given.memory == memory || given.address() == nullptr) return;
    copy_ = OwnedBuffer(given.dtype, given.count, memory);
    if (reads) transfer(copy_.buffer(), given);
    buffer_ = copy_.buffer();
  }

  const BasicBuffer<Void>& buffer() const { return buffer_; }
  /// Writes the elements where they belong.
  void write_back() const requires(!std::is_const_v<Void>) {
    if (buffer_.memory != given_.memory) transfer(given_, copy_.buffer());
  }

 private:
  BasicBuffer<Void> given_;
  BasicBuffer<Void> buffer_;
  OwnedBuffer copy_;
};

}  // namespace starling::kernel
