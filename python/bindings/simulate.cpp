#include <chrono>
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "module.h"
#include "objective.h"
#include "starling/base/error.h"
#include "starling/simulate/consensus.h"
#include "starling/simulate/training.h"

namespace py = pybind11;

namespace starling::python {
namespace {

using DoubleArray = py::array_t<double>;

DoubleArray to_array(const std::vector<double>& values, std::vector<py::ssize_t> shape) {
  return DoubleArray(std::move(shape), values.data());
}

/// One member of every point of a curve, as an array.
template <typename Point, typename T>
py::array_t<T> column(const std::vector<Point>& curve, T Point::*member) {
  py::array_t<T> values(static_cast<py::ssize_t>(curve.size()));
  for (std::size_t i = 0; i < curve.size(); ++i)
    values.mutable_at(static_cast<py::ssize_t>(i)) = curve[i].*member;
  return values;
}

/// Checks for Ctrl-C about ten times a second; returns true until it was pressed.
class Interrupts {
 public:
  bool none() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return true;
    next_ = now + std::chrono::milliseconds(100);
    const py::gil_scoped_acquire acquire;
    pressed_ = pressed_ || PyErr_CheckSignals() != 0;
    return !pressed_;
  }
  void rethrow() const {
    if (pressed_) throw py::error_already_set();
  }

 private:
  std::chrono::steady_clock::time_point next_{};
  bool pressed_ = false;
};

py::dict consensus(const std::shared_ptr<Schedule>& schedule, ConsensusOptions options) {
  Interrupts interrupts;
  options.progress = [&](Step, double) { return interrupts.none(); };
  const ConsensusResult result = [&] {
    const py::gil_scoped_release release;
    return run_consensus(schedule, options);
  }();
  interrupts.rethrow();
  py::dict made;
  made["topology"] = result.topology;
  made["n"] = result.n;
  made["outcome"] = to_string(result.outcome);
  made["steps"] = result.steps;
  made["steps_run"] = result.steps_run;
  made["error"] = result.error;
  made["messages"] = result.messages;
  made["wall_seconds"] = result.seconds;
  made["step"] = column(result.curve, &ConsensusPoint::step);
  made["errors"] = column(result.curve, &ConsensusPoint::error);
  made["messages_sent"] = column(result.curve, &ConsensusPoint::messages);
  return made;
}

void add_curve(py::dict& made, const std::vector<TrainingPoint>& curve) {
  made["step"] = column(curve, &TrainingPoint::step);
  made["gap"] = column(curve, &TrainingPoint::gap);
  made["gradient_norm"] = column(curve, &TrainingPoint::gradient_norm);
  made["consensus"] = column(curve, &TrainingPoint::consensus);
  made["distance"] = column(curve, &TrainingPoint::distance);
  made["bytes"] = column(curve, &TrainingPoint::bytes);
  made["seconds"] = column(curve, &TrainingPoint::seconds);
  made["staleness"] = column(curve, &TrainingPoint::staleness);
}

py::dict training(const Objective& objective, TrainingOptions options,
                  const std::shared_ptr<Schedule>& schedule, bool keep_trace) {
  options.schedule = schedule;
  Interrupts interrupts;
  options.progress = [&](Step) { return interrupts.none(); };
  std::vector<double> trace;
  py::ssize_t traced = 0;
  if (keep_trace)
    options.observe = [&](Step, const SimulatedModels& models) {
      ++traced;
      for (Rank node = 0; node < models.nodes(); ++node)
        trace.insert(trace.end(), models(node).begin(), models(node).end());
    };
  const TrainingResult result = [&] {
    const py::gil_scoped_release release;
    return run_training(objective, options);
  }();
  interrupts.rethrow();
  const auto nodes = static_cast<py::ssize_t>(objective.nodes());
  const auto dim = static_cast<py::ssize_t>(objective.dim());
  py::dict made;
  made["method"] = result.method;
  made["topology"] = result.topology;
  made["warning"] = result.warning;
  made["diverged"] = result.diverged ? result.diverged->text() : "";
  made["gap_known"] = result.gap_known;
  made["wall_seconds"] = result.wall_seconds;
  made["gradient_seconds"] = result.gradient_seconds;
  made["oldest"] = result.oldest;
  made["mean_model"] = to_array(result.mean_model, {dim});
  made["models"] = to_array(result.models, {nodes, dim});
  made["trace"] = py::none();
  if (keep_trace) made["trace"] = to_array(trace, {traced, nodes, dim});
  add_curve(made, result.curve);
  return made;
}

void bind_time(py::module_& module) {
  py::class_<TimeModel>(module, "TimeModel", "How fast the modeled machines are.")
      .def(py::init<>())
      .def_readwrite("compute", &TimeModel::compute)
      .def_readwrite("compute_of", &TimeModel::compute_of)
      .def_readwrite("seed", &TimeModel::seed)
      .def_readwrite("ranks_per_host", &TimeModel::ranks_per_host)
      .def("set_link",
           [](TimeModel& self, double latency, double pace) {
             self.link = {latency, pace};
           })
      .def("set_inside",
           [](TimeModel& self, double latency, double pace) {
             self.inside = {latency, pace};
           })
      .def("add_rule",
           [](TimeModel& self, std::vector<Rank> from, std::vector<Rank> to, double latency, double pace) {
             self.rules.push_back({std::move(from), std::move(to), {latency, pace}});
           })
      .def("add_straggler", [](TimeModel& self, std::vector<Rank> nodes, Step every, double probability,
                               double factor, double extra) {
        self.stragglers.push_back({std::move(nodes), every, probability, factor, extra});
      });
}

}  // namespace

void bind_simulate(py::module_& module) {
  bind_time(module);
  bind_objective(module);
  py::class_<ConsensusOptions>(module, "ConsensusOptions")
      .def(py::init<>())
      .def_readwrite("tolerance", &ConsensusOptions::tolerance)
      .def_readwrite("dim", &ConsensusOptions::dim)
      .def_readwrite("seed", &ConsensusOptions::seed)
      .def_readwrite("steps", &ConsensusOptions::max_steps);
  py::class_<TrainingOptions>(module, "TrainingOptions")
      .def(py::init<>())
      .def_readwrite("method", &TrainingOptions::method)
      .def_readwrite("topology", &TrainingOptions::topology)
      .def_readwrite("optimizer", &TrainingOptions::optimizer)
      .def_readwrite("lr", &TrainingOptions::lr)
      .def_readwrite("decay", &TrainingOptions::decay)
      .def_readwrite("decay_every", &TrainingOptions::decay_every)
      .def_readwrite("steps", &TrainingOptions::steps)
      .def_readwrite("seed", &TrainingOptions::seed)
      .def_property(
          "precision", [](const TrainingOptions& self) { return name(self.precision); },
          [](TrainingOptions& self, const std::string& text) { self.precision = parse_dtype(text); })
      .def_readwrite("threads", &TrainingOptions::threads)
      .def_readwrite("drop", &TrainingOptions::drop)
      .def_readwrite("time", &TrainingOptions::time)
      .def_readwrite("points", &TrainingOptions::points);
  module.def("run_consensus", &consensus, py::arg("schedule"), py::arg("options"));
  module.def("run_training", &training, py::arg("objective"), py::arg("options"), py::arg("schedule"),
             py::arg("trace"));
}

}  // namespace starling::python
