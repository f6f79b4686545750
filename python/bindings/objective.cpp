#include "objective.h"

#include <cmath>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "deprecated.h"
#include "starling/base/error.h"
#include "starling/simulate/minimize.h"
#include "starling/simulate/objective/quadratic.h"
#include "starling/simulate/objective_registry.h"

namespace py = pybind11;

namespace starling::python {
namespace {

using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;

std::vector<double> values_of(const Array& array) {
  return {array.data(), array.data() + array.size()};
}

/// An objective whose gradients a Python function computes. Callers, on any thread, do not hold the
/// interpreter lock.
class PythonObjective final : public Objective {
 public:
  struct Data {
    py::function gradient;          // (node, x, step) -> array
    py::object value;               // x -> number, or None
    std::vector<double> start;      // nodes x dim
    std::vector<double> minimizer;  // empty if it is not known
  };
  PythonObjective(Rank nodes, Data data)
      : Objective(nodes, data.start.size() / static_cast<std::size_t>(nodes)), data_(std::move(data)) {}

  void start(Rank node, std::span<double> x) const override {
    const std::size_t row = static_cast<std::size_t>(node) * dim();
    std::copy_n(data_.start.begin() + static_cast<std::ptrdiff_t>(row), dim(), x.begin());
  }

  using Objective::gradient;
  void gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const override {
    const py::gil_scoped_acquire acquire;
    const Array made(data_.gradient(node, copy(x), step));
    if (made.size() != static_cast<py::ssize_t>(dim()))
      throw InvalidArgument("the gradient of node " + std::to_string(node) + " has " +
                            std::to_string(made.size()) + " elements; x has " + std::to_string(dim()));
    std::copy_n(made.data(), dim(), out.begin());
  }

  double value(std::span<const double> x) const override {
    const py::gil_scoped_acquire acquire;
    return data_.value.is_none() ? std::nan("") : data_.value(copy(x)).cast<double>();
  }

  std::optional<std::vector<double>> minimizer() const override {
    return data_.minimizer.empty() ? std::nullopt : std::optional(data_.minimizer);
  }
  std::optional<double> least_value() const override {
    const py::gil_scoped_acquire acquire;
    return data_.value.is_none() ? std::nullopt : Objective::least_value();
  }

 private:
  static Array copy(std::span<const double> x) { return Array(static_cast<py::ssize_t>(x.size()), x.data()); }

  Data data_;
};

std::shared_ptr<Objective> mutable_pointer(const ObjectivePtr& objective) {
  return std::const_pointer_cast<Objective>(objective);
}

Array at(const Objective& objective, const Array& x, Rank node) {
  if (x.size() != static_cast<py::ssize_t>(objective.dim()) || node < -1 || node >= objective.nodes())
    throw InvalidArgument("x has " + std::to_string(objective.dim()) +
                          " elements, and nodes are numbered from 0 to " +
                          std::to_string(objective.nodes() - 1));
  const std::vector<double> from = values_of(x);
  std::vector<double> out(from.size());
  {
    const py::gil_scoped_release release;
    node < 0 ? objective.mean_gradient(from, out) : objective.exact_gradient(node, from, out);
  }
  return Array(static_cast<py::ssize_t>(out.size()), out.data());
}

Array least(const Objective& objective) {
  const auto where = [&] {
    const py::gil_scoped_release release;
    const auto known = objective.minimizer();
    return known ? *known : minimize(objective);
  }();
  return Array(static_cast<py::ssize_t>(where.size()), where.data());
}

}  // namespace

void bind_objective(py::module_& module) {
  py::class_<Objective, std::shared_ptr<Objective>>(module, "Objective", "What the nodes minimize together.")
      .def_property_readonly("nodes", &Objective::nodes)
      .def_property_readonly("dim", &Objective::dim)
      .def(
          "value",
          [](const Objective& self, const Array& x) {
            const std::vector<double> from = values_of(x);
            if (from.size() != self.dim())
              throw InvalidArgument("x has " + std::to_string(self.dim()) + " elements, not " +
                                    std::to_string(from.size()));
            const py::gil_scoped_release release;
            return self.value(from);
          },
          py::arg("x"), "The mean of the nodes' functions.")
      .def("gradient", &at, py::arg("x"), py::arg("node") = -1, "Exact, of one node; of the mean without.")
      .def(
          "minimise",
          [](const Objective& self) {
            warn_deprecated("minimise()", "minimize()");
            return least(self);
          },
          "The older name of minimize().")
      .def("minimize", &least, "Where the mean is least: as known, or by L-BFGS from node 0's start.");
  module.def(
      "make_objective",
      [](const std::string& spec, Rank nodes, std::size_t dim, std::uint64_t seed) {
        const py::gil_scoped_release release;
        return mutable_pointer(make_objective(spec, nodes, dim, seed));
      },
      py::arg("spec"), py::arg("nodes"), py::arg("dim"), py::arg("seed"));
  module.def(
      "quadratic_objective",
      [](Rank nodes, const Array& a, const Array& b, const Array& start, double noise, std::uint64_t seed) {
        return mutable_pointer(std::make_shared<Quadratic>(
            nodes, Quadratic::Data{values_of(a), values_of(b), values_of(start), noise, seed}));
      },
      py::arg("nodes"), py::arg("a"), py::arg("b"), py::arg("start"), py::arg("noise"), py::arg("seed"));
  module.def(
      "python_objective",
      [](Rank nodes, py::function gradient, py::object value, const Array& start, const Array& minimizer) {
        return mutable_pointer(std::make_shared<PythonObjective>(
            nodes, PythonObjective::Data{std::move(gradient), std::move(value), values_of(start),
                                         values_of(minimizer)}));
      },
      py::arg("nodes"), py::arg("gradient"), py::arg("value"), py::arg("start"), py::arg("minimizer"));
}

}  // namespace starling::python
