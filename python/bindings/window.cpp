#include "starling/flock/window.h"

#include <pybind11/stl.h>

#include "module.h"
#include "pending.h"
#include "tensor.h"

namespace py = pybind11;

namespace starling::python {
namespace {

/// Refuses calls in forked children before they begin, because window writes need no other rank's
/// cooperation.
struct OwnProcess {
  OwnProcess() { refuse_in_child(); }
};
using NoLock = py::call_guard<OwnProcess, py::gil_scoped_release>;
using MaybeWeights = std::optional<Window::Weights>;

Window create(Flock& flock, const Tensor& tensor, const std::string& name, bool zero, double copies_p) {
  refuse_in_child();
  const py::gil_scoped_release release;
  return flock.create_window(target_of(tensor), name, {.zero = zero, .copies_p = copies_p});
}

/// The mutexes of some ranks' windows, from enter() to exit().
class Held {
 public:
  Held(Window window, std::vector<Rank> ranks) : window_(std::move(window)), ranks_(std::move(ranks)) {}
  /// Waits without the interpreter lock, which only the Ctrl-C check takes.
  void enter() {
    mutex_.emplace(window_.mutex(ranks_, [] {
      const py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }));
  }
  void exit() { mutex_.reset(); }

 private:
  Window window_;
  std::vector<Rank> ranks_;
  std::optional<Window::Mutex> mutex_;
};

}  // namespace

void bind_window(py::module_& module) {
  py::class_<Held>(module, "WindowMutex")
      .def("__enter__",
           [](Held& self) {
             refuse_in_child();
             const py::gil_scoped_release release;
             self.enter();
           })
      .def("__exit__", [](Held& self, const py::args&) { self.exit(); });
  py::class_<Window>(module, "Window",
                     "Memory that others may put into, add to or get from at any time. Device work of a "
                     "call is enqueued in the thread's PlaceScope.")
      .def(py::init(&create), py::arg("flock"), py::arg("tensor"), py::arg("name"), py::arg("zero") = false,
           py::arg("copies_p") = 1.0)
      .def("put", &Window::put, py::arg("destinations") = py::none(), py::arg("self_weight") = 1.0, NoLock())
      .def("accumulate", &Window::accumulate, py::arg("destinations") = py::none(),
           py::arg("self_weight") = 1.0, NoLock())
      .def(
          "put_value",
          [](Window& self, const Tensor& value, const MaybeWeights& to) {
            self.put_value(source_of(value), to);
          },
          NoLock())
      .def(
          "accumulate_value",
          [](Window& self, const Tensor& value, const MaybeWeights& to) {
            self.accumulate_value(source_of(value), to);
          },
          NoLock())
      .def("get", &Window::get, py::arg("sources") = py::none(), NoLock())
      .def(
          "update", [](Window& self, bool reset) { self.update(reset); }, py::arg("reset") = false, NoLock())
      .def(
          "update_weighted",
          [](Window& self, double self_weight, const Window::Weights& sources, bool reset) {
            self.update(self_weight, sources, reset);
          },
          NoLock())
      .def(
          "update_into",
          [](Window& self, const Tensor& out, double self_weight, const Window::Weights& sources,
             bool reset) { self.update_into(target_of(out), self_weight, sources, reset); },
          NoLock())
      .def("update_then_collect", &Window::update_then_collect, NoLock())
      .def("publish", &Window::publish, NoLock())
      .def("version", &Window::version)
      .def("usual_weights", &Window::usual_weights)
      .def_property("p", &Window::p, &Window::set_p)
      .def_property_readonly("sources", &Window::sources)
      .def_property_readonly("destinations", &Window::destinations)
      .def_property_readonly("name", &Window::name)
      .def("mutex", [](Window& self, const std::vector<Rank>& ranks) { return Held(self, ranks); });
  module.def(
      "free_window", [](Flock& flock, const std::string& name) { flock.window(Name(name)).free(); },
      NoLock());
}

}  // namespace starling::python
