#include "adopt.h"

#include <torch/extension.h>

#include "starling/base/error.h"
#include "starling/fabric/c10d/c10d.h"

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace starling::python {
namespace {

// Python's objects keep what they point to in holders of torch's own: only the pointer is asked for.
template <typename T>
c10::intrusive_ptr<T> shared(const py::object& object) {
  return c10::intrusive_ptr<T>::unsafe_reclaim_from_nonowning(object.cast<T*>());
}

c10d_engine::GroupPtr group_of(const py::object& object) {
  const auto group = shared<::c10d::ProcessGroup>(object);
#if TORCH_VERSION_MAJOR >= 2
  return group->getBackend(c10::DeviceType::CPU);
#else
  return group;
#endif
}

}  // namespace

std::shared_ptr<Fabric>* adopt_group(const py::object& group, const py::object& store) {
  auto engine = group_of(group);
  auto where = shared<::c10d::Store>(store);
  const py::gil_scoped_release release;
  return new std::shared_ptr<Fabric>(adopt_c10d(std::move(engine), std::move(where)));
}

}  // namespace starling::python
