#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "module.h"
#include "starling/flock/block.h"
#include "starling/kernel/device.h"

namespace starling::python {

/// A device and one of its streams, on which work on a tensor is enqueued; empty for tensors in host memory.
using DevicePlace = std::optional<std::pair<int, Address>>;
/// (from, to, elements, dtype, place) of one tensor; addresses are integers.
using Tensor = std::tuple<Address, Address, std::size_t, int, DevicePlace>;

/// The elements of a tensor at the address to which an operation writes, or from which it reads.
Buffer target_of(const Tensor& tensor);
ConstBuffer source_of(const Tensor& tensor, std::uint32_t shape = 0);

/// The context for work at this place: the calling thread's, if the place is in host memory.
kernel::DeviceContext context_at(const DevicePlace& place);

/// Memory for a result, from a Python function that is given the number of elements and returns the address.
flock::Room room_of(const Tensor& like, const pybind11::function& allocate);

/// Makes a place the calling thread's device context, from enter to exit.
class PlaceScope {
 public:
  explicit PlaceScope(const DevicePlace& place) : place_(place) {}
  void enter() { scope_.emplace(context_at(place_)); }
  void exit() { scope_.reset(); }

 private:
  DevicePlace place_;
  std::optional<kernel::DeviceScope> scope_;
};

}  // namespace starling::python
