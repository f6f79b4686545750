#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "starling/base/dtype.h"

namespace starling {

/// The kinds of memory that a buffer may lie in.
enum class MemoryKind : std::uint8_t { host, cuda };

/// "host memory", "CUDA memory".
std::string name(MemoryKind memory);

[[noreturn]] void throw_not_host_memory(MemoryKind memory);
[[noreturn]] void throw_other_element_type(DType dtype, DType asked);

/// A typed view of a run of elements in host or device memory: what fabrics, flocks, blocks, codecs and
/// kernels pass to each other. It does not own the memory. host_data() and host() throw if the elements lie
/// on a device.
template <typename Void>
class BasicBuffer {
  template <typename E>
  using Element = std::conditional_t<std::is_const_v<Void>, const E, E>;
  using Byte = Element<std::byte>;

 public:
  BasicBuffer() = default;
  /// A buffer in host memory.
  BasicBuffer(DType type, Void* data, std::size_t elements, std::uint32_t number_of_shape = 0)
      : dtype(type), shape(number_of_shape), count(elements), data_(data) {}
  /// A buffer on a device. Work on it is ordered by `device_stream`, a stream handle of the device's library.
  BasicBuffer(DType type, Void* data, std::size_t elements, MemoryKind kind, void* device_stream)
      : dtype(type), memory(kind), count(elements), stream(device_stream), data_(data) {}
  /// Implicit: a writable buffer converts to a read-only one.
  template <typename Other>
  requires(std::is_const_v<Void> && !std::is_const_v<Other>)
      BasicBuffer(const BasicBuffer<Other>& other)  // NOLINT
      : dtype(other.dtype),
        memory(other.memory),
        shape(other.shape),
        count(other.count),
        stream(other.stream),
        data_(other.address()) {}

  DType dtype = DType::float32;
  MemoryKind memory = MemoryKind::host;
  /// A number that identifies the shape and must agree between all ranks (in a gather, the shape of one row);
  /// 0 if only the count matters.
  std::uint32_t shape = 0;
  std::size_t count = 0;
  void* stream = nullptr;

  std::size_t bytes() const { return count * size_of(dtype); }
  bool on_host() const { return memory == MemoryKind::host; }

  /// The address, for code that reads or writes the elements. Throws InvalidArgument if they are not in host
  /// memory.
  Void* host_data() const {
    if (memory != MemoryKind::host) throw_not_host_memory(memory);
    return data_;
  }
  Byte* host_bytes() const { return static_cast<Byte*>(host_data()); }
  /// The elements in host memory. E must be the buffer's element type.
  template <typename E>
  Element<E>* host() const {
    if (dtype != dtype_of<E>) throw_other_element_type(dtype, dtype_of<E>);
    return static_cast<Element<E>*>(host_data());
  }
  /// The address in any kind of memory, for comparing and passing on. Do not dereference it.
  Void* address() const { return data_; }

  /// The part that starts at `begin` and has `elements` elements.
  BasicBuffer part(std::size_t begin, std::size_t elements) const {
    BasicBuffer result = *this;
    result.data_ = static_cast<Byte*>(data_) + begin * size_of(dtype);
    result.count = elements;
    return result;
  }
  /// A buffer with the same type, count and kind of memory at another address.
  template <typename Other>
  BasicBuffer<Other> at(Other* data) const {
    BasicBuffer<Other> result(dtype, data, count, memory, stream);
    result.shape = shape;
    return result;
  }

 private:
  Void* data_ = nullptr;
};

using Buffer = BasicBuffer<void>;
using ConstBuffer = BasicBuffer<const void>;

}  // namespace starling
