#include "adopt.h"

#include <torch/extension.h>

#include "starling/base/error.h"
#include "starling/fabric/c10d/c10d.h"

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace starling::python {
namespace {

struct Adopted {
  c10d_engine::GroupPtr group;
  c10d_engine::StorePtr store;
};

#if TORCH_VERSION_MAJOR >= 2
// By its name: torch's Python classes may belong to another pybind11 than ours.
Adopted find_group(const py::object& group, const py::object& /*store*/) {
  const auto found = ::c10d::resolve_process_group(group.attr("group_name").cast<std::string>());
  return {found->getBackend(c10::DeviceType::CPU), found->getStore()};
}
#else
// Python's objects keep what they point to in holders of torch's own: only the pointer is asked for.
template <typename T>
c10::intrusive_ptr<T> shared(const py::object& object) {
  return c10::intrusive_ptr<T>::unsafe_reclaim_from_nonowning(object.cast<T*>());
}

Adopted find_group(const py::object& group, const py::object& store) {
  return {shared< ::c10d::ProcessGroup>(group), shared< ::c10d::Store>(store)};
}
#endif

}  // namespace

std::shared_ptr<Fabric>* adopt_group(const py::object& group, const py::object& store) {
  Adopted found = find_group(group, store);
  const py::gil_scoped_release release;
  return new std::shared_ptr<Fabric>(adopt_c10d(std::move(found.group), std::move(found.store)));
}

}  // namespace starling::python
