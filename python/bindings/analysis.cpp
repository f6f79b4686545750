#include "starling/topology/analysis.h"

#include <pybind11/stl.h>

#include "module.h"
#include "starling/method/defaults.h"
#include "starling/method/registry.h"
#include "starling/report/topology_svg.h"
#include "starling/simulate/objective_registry.h"

namespace py = pybind11;

namespace starling::python {
namespace {

const char* word(Mixing mixing) {
  return mixing == Mixing::average ? "average" : mixing == Mixing::push_sum ? "push-sum" : "two-block";
}

template <typename Family>
py::dict describe(const Family& family) {
  py::list parameters;
  for (const Parameter& parameter : family.parameters) {
    py::object fallback = py::none();
    if (!parameter.fallback.empty()) fallback = py::str(parameter.fallback);
    parameters.append(py::dict(py::arg("name") = parameter.name, py::arg("default") = fallback,
                               py::arg("help") = parameter.help));
  }
  return py::dict(py::arg("name") = family.name, py::arg("summary") = family.summary,
                  py::arg("parameters") = parameters);
}

py::list describe_topologies() {
  py::list list;
  for (const Family& family : topology_families()) {
    py::dict one = describe(family);
    one["random"] = family.random;
    one["changing"] = family.changing;
    list.append(one);
  }
  return list;
}

template <typename Families>
py::list describe_all(const Families& families) {
  py::list list;
  for (const auto& family : families) list.append(describe(family));
  return list;
}

Analysis analysis_of(const std::shared_ptr<Schedule>& schedule) {
  const py::gil_scoped_release release;
  return analyze(schedule);
}

}  // namespace

void bind_analysis(py::module_& module) {
  py::class_<Analysis>(module, "Analysis", "The known properties of a topology; None if not computed.")
      .def_readonly("name", &Analysis::name)
      .def_readonly("n", &Analysis::n)
      .def_readonly("period", &Analysis::period, "Rounds until it repeats; 0: never.")
      .def_readonly("random", &Analysis::random)
      .def_property_readonly(
          "mixing", [](const Analysis& self) { return word(self.mixing); },
          "What travels: average, push-sum or two-block.")
      .def_readonly("row_stochastic", &Analysis::row_stochastic)
      .def_readonly("column_stochastic", &Analysis::column_stochastic)
      .def_readonly("symmetric", &Analysis::symmetric)
      .def_readonly("nonnegative", &Analysis::nonnegative)
      .def_readonly("connected", &Analysis::connected, "The union of a period's rounds.")
      .def_property_readonly(
          "rho",
          [](const Analysis& self) { return self.rho ? std::optional(self.rho->value) : std::nullopt; },
          "||W - J||; of a period the T-th root of its product's; of a random family mean-square.")
      .def_property_readonly(
          "rho_how",
          [](const Analysis& self) { return self.rho ? std::optional(self.rho->how) : std::nullopt; },
          "formula, eigenvalues, sampled ...")
      .def_property_readonly("rho_standard_error",
                             [](const Analysis& self) { return self.rho ? self.rho->standard_error : 0.0; })
      .def_readonly("rho_is_mean_square", &Analysis::rho_is_mean_square)
      .def_readonly("round_rho", &Analysis::round_rho, "Of each round of a period.")
      .def_readonly("second_modulus", &Analysis::second_modulus,
                    "|lambda_2|, where W is not doubly stochastic.")
      .def_readonly("lambda_min", &Analysis::lambda_min, "Of a static symmetric W.")
      .def_property_readonly(
          "exact_rounds",
          [](const Analysis& self) { return self.exact ? std::optional(self.exact->rounds) : std::nullopt; },
          "The number of rounds after which the average is exact; None: never, or not computed.")
      .def_property_readonly("exact_from_any_step",
                             [](const Analysis& self) { return self.exact && self.exact->from_any_step; })
      .def_readonly("messages_per_exact", &Analysis::messages_per_exact,
                    "Of one model's size, from step 0 until the average is exact.")
      .def_property_readonly(
          "peers", [](const Analysis& self) { return self.cost.peers; }, "Most of a rank in a round.")
      .def_property_readonly(
          "messages_per_step", [](const Analysis& self) { return self.cost.messages; },
          "Of one model's size, by the whole flock.")
      .def(
          "step_seconds",
          [](const Analysis& self, double bytes, double bandwidth, double latency) {
            return self.cost.seconds(bytes, {bandwidth, latency});
          },
          py::arg("message_bytes"), py::arg("bandwidth") = LinkModel().bandwidth,
          py::arg("latency") = LinkModel().latency, "Of the busiest rank; bandwidth in bytes a second.");
  module.def("analyze", &analysis_of, py::arg("schedule"));
  module.def(
      "topology_svg",
      [](const Schedule& schedule, int rounds) { return topology_svg(schedule, {.max_rounds = rounds}); },
      py::arg("schedule"), py::arg("rounds") = 12, "The exchanges of a schedule, as a picture.");
  module.attr("DEFAULT_METHOD") = kDefaultMethod;
  module.attr("DEFAULT_TOPOLOGY") = kDefaultTopology;
  module.attr("DEFAULT_OPTIMIZER") = kDefaultOptimizer;
  module.def("topology_families", &describe_topologies);
  module.def("method_families", [] { return describe_all(method_families()); });
  module.def("objective_families", [] { return describe_all(objective_families()); });
}

}  // namespace starling::python
