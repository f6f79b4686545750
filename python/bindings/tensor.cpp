#include "tensor.h"

#include "ask_python.h"

namespace py = pybind11;

namespace starling::python {
namespace {

Buffer buffer_at(Address address, const Tensor& tensor) {
  const auto& [from, to, count, dtype, place] = tensor;
  const auto type = static_cast<DType>(dtype);
  if (place) return {type, pointer(address), count, MemoryKind::cuda, nullptr};
  return {type, pointer(address), count};
}

}  // namespace

Buffer target_of(const Tensor& tensor) {
  return buffer_at(std::get<1>(tensor), tensor);
}

ConstBuffer source_of(const Tensor& tensor, std::uint32_t shape) {
  ConstBuffer buffer = buffer_at(std::get<0>(tensor), tensor);
  buffer.shape = shape;
  return buffer;
}

kernel::DeviceContext context_at(const DevicePlace& place) {
  return place ? kernel::DeviceContext{place->first, pointer(place->second)} : kernel::device_context();
}

// Called by whichever thread completes the operation, which has released the interpreter lock.
flock::Room room_of(const Tensor& like, const py::function& allocate) {
  const std::shared_ptr<py::function> shared(new py::function(allocate), [](py::function* one) {
    const py::gil_scoped_acquire acquire;
    delete one;
  });
  return [like, shared](std::size_t count) {
    Tensor result = like;
    std::get<1>(result) = ask_python([&] { return (*shared)(count).cast<Address>(); });
    std::get<2>(result) = count;
    return target_of(result);
  };
}

}  // namespace starling::python
