#include <optional>
#include <pybind11/stl.h>

#include "module.h"
#include "starling/data/data_split.h"

namespace py = pybind11;

namespace starling::python {

// The data splits that FlockSampler uses.
void bind_data(py::module_& module) {
  py::class_<DataSplit>(module, "DataSplit")
      .def(py::init([](std::size_t count, const std::optional<std::string>& labels, Rank rank, Rank size,
                       const std::string& partition, std::uint64_t seed, bool shuffle, bool even) {
             Samples samples{count, {}};
             if (labels)
               samples.labels = {reinterpret_cast<const std::uint8_t*>(labels->data()), labels->size()};
             return DataSplit(samples, rank, size, {partition, seed, shuffle, even});
           }),
           py::arg("count"), py::arg("labels"), py::arg("rank"), py::arg("size"), py::arg("partition"),
           py::arg("seed"), py::arg("shuffle"), py::arg("even"),
           "One rank's part of `count` samples, with a byte per sample where they have labels.")
      .def("order", &DataSplit::order, py::arg("epoch"), "The samples of an epoch, in their order.")
      .def_property_readonly("size", &DataSplit::size, "Samples per epoch.");
}

}  // namespace starling::python
