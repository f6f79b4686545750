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

#if TORCH_VERSION_MAJOR >= 2
// Finds the group by name, because torch's Python classes may belong to another version of pybind11.
c10d_engine::GroupPtr find_group(const py::object& group) {
  return ::c10d::resolve_process_group(group.attr("group_name").cast<std::string>())
      ->getBackend(c10::DeviceType::CPU);
}
c10d_engine::StorePtr find_store(const py::object& group, const py::object& /*store*/) {
  return ::c10d::resolve_process_group(group.attr("group_name").cast<std::string>())->getStore();
}
#else
// Python's objects keep their targets in torch's own holders, so only the pointer is read.
template <typename T>
c10::intrusive_ptr<T> shared(const py::object& object) {
  return c10::intrusive_ptr<T>::unsafe_reclaim_from_nonowning(object.cast<T*>());
}

c10d_engine::GroupPtr find_group(const py::object& group) {
  return shared< ::c10d::ProcessGroup>(group);
}
c10d_engine::StorePtr find_store(const py::object& /*group*/, const py::object& store) {
  return shared< ::c10d::Store>(store);
}
#endif

}  // namespace

std::shared_ptr<Fabric>* adopt_groups(const std::vector<py::object>& three, const py::object& store) {
  c10d_engine::Groups groups{find_group(three.at(0)), find_group(three.at(1)), find_group(three.at(2))};
  c10d_engine::StorePtr meeting = find_store(three.at(0), store);
  const py::gil_scoped_release release;
  return new std::shared_ptr<Fabric>(adopt_c10d(std::move(groups), std::move(meeting)));
}

}  // namespace starling::python
