#pragma once

#include <type_traits>

#include "starling/kernel/arithmetic.h"
#include "starling/kernel/transfer.h"

namespace starling::kernel {

/// A buffer's elements in the kind of memory that the code needs: the buffer itself, or a copy if it is in
/// another. Copies wait for the calling thread's stream.
template <typename Void>
class Staged {
 public:
  /// `reads`: whether to copy the elements in; false if they will only be overwritten.
  explicit Staged(const BasicBuffer<Void>& given, MemoryKind memory = MemoryKind::host, bool reads = true)
      : given_(given), buffer_(given) {
    if (given.memory == memory || given.address() == nullptr) return;
    copy_ = OwnedBuffer(given.dtype, given.count, memory);
    if (reads) transfer(copy_.buffer(), given);
    buffer_ = copy_.buffer();
  }

  const BasicBuffer<Void>& buffer() const { return buffer_; }
  /// Copies the elements back to the given buffer, if they were staged.
  void write_back() const requires(!std::is_const_v<Void>) {
    if (buffer_.memory != given_.memory) transfer(given_, copy_.buffer());
  }

 private:
  BasicBuffer<Void> given_;
  BasicBuffer<Void> buffer_;
  OwnedBuffer copy_;
};

}  // namespace starling::kernel
