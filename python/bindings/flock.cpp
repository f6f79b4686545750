#include <optional>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "ask_python.h"
#include "deprecated.h"
#include "module.h"
#include "pending.h"
#include "starling/base/stopwatch.h"
#include "starling/topology/registry.h"
#include "tensor.h"

namespace py = pybind11;

namespace starling::python {
namespace {

using WeightMap = std::map<Rank, double>;
/// A number for each tensor's shape, which ranks must agree on; empty if only counts matter.
using Shapes = std::vector<std::uint32_t>;

Piece piece_of(Address from, Address to, std::size_t count, int dtype, std::uint32_t shape) {
  const auto type = static_cast<DType>(dtype);
  return {{type, pointer(from), count, shape}, {type, pointer(to), count}, 0};
}

Pieces pieces_of_tensors(const std::vector<Tensor>& tensors, const Shapes& shapes) {
  if (tensors.empty()) throw InvalidArgument("the group has no tensors");
  if (!shapes.empty() && shapes.size() != tensors.size())
    throw InvalidArgument("there must be as many shapes as tensors");
  std::vector<Buffer> blocks;
  for (const Tensor& tensor : tensors) blocks.push_back(target_of(tensor));
  Pieces pieces = pieces_of(blocks);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    pieces[i].in = source_of(tensors[i], shapes.empty() ? 0 : shapes[i]);
  return pieces;
}

Reduction reduction_of(const std::string& word) {
  if (word == "sum") return Reduction::sum;
  if (word == "average") return Reduction::average;
  if (word == "min") return Reduction::min;
  if (word == "max") return Reduction::max;
  throw InvalidArgument("a reduction is sum, average, min or max, not " + word);
}

/// Starts an operation without the interpreter lock, because posting copies the tensors, which may take a
/// while.
template <typename F>
Started start(F&& make) {
  refuse_in_child();
  return Started([&] {
    const py::gil_scoped_release release;
    return make();
  }());
}

// The context of an operation's tensors, which are all on one device.
kernel::DeviceContext context_of(const std::vector<Tensor>& tensors) {
  kernel::DeviceContext context = kernel::device_context();
  const DevicePlace* first = nullptr;
  for (const Tensor& tensor : tensors) {
    const DevicePlace& place = std::get<4>(tensor);
    if (!place) continue;
    if (first != nullptr && place->first != (*first)->first)
      throw InvalidArgument("the tensors of one operation are on one device, not on cuda:" +
                            std::to_string((*first)->first) + " and cuda:" + std::to_string(place->first));
    first = &place;
    context = context_at(place);
  }
  return context;
}

/// Starts an operation on tensors: make(pieces).
template <typename F>
Started start_on(const std::vector<Tensor>& tensors, const Shapes& shapes, const F& make) {
  return start([&] {
    const kernel::DeviceScope scope(context_of(tensors));
    return make(pieces_of_tensors(tensors, shapes));
  });
}

/// Starts an operation whose result has a length that is not known yet: make(in, room).
template <typename F>
Started start_gather(const Tensor& tensor, std::uint32_t rows, const py::function& allocate, const F& make) {
  Room room = room_of(tensor, allocate);
  return start([&] {
    const kernel::DeviceScope scope(context_at(std::get<4>(tensor)));
    return make(source_of(tensor, rows), std::move(room));
  });
}

void bind_pending(py::module_& module) {
  py::class_<Started>(module, "Pending", "A started operation; it ends in a result or an error.")
      .def("ready", &Started::ready, "Whether wait() would return at once. Makes progress, never blocks.")
      .def("wait", &Started::wait,
           "Returns when the result is there. The interpreter lock is free meanwhile.")
      .def("wait_for", &Started::wait_for, py::arg("seconds"),
           "wait() for so long; False when that was too short.");
  py::class_<PlaceScope>(module, "PlaceScope", "Device work of this thread is enqueued at this place.")
      .def(py::init<DevicePlace>(), py::arg("place"))
      .def("__enter__", &PlaceScope::enter)
      .def("__exit__", [](PlaceScope& self, const py::args&) { self.exit(); });
}

Flock join_now() {
  refuse_in_child();
  note_member();
  const py::gil_scoped_release release;
  return join();
}

void bind_operations(py::class_<Flock>& flock) {
  flock
      .def(
          "neighbor_allreduce",
          [](Flock& self, Address from, Address to, std::size_t count, int dtype, const std::string& name,
             std::uint32_t shape) {
            refuse_in_child();
            Pending pending = [&] {
              const py::gil_scoped_release release;
              return ByteOperations(self).neighbor_allreduce({piece_of(from, to, count, dtype, shape)}, {},
                                                             name);
            }();
            try {
              wait_for_result(pending);
            } catch (const py::error_already_set&) {
              pending.abandon();  // the destructor would wait; the caller keeps the memory alive
              throw;
            }
          },
          py::arg("from"), py::arg("to"), py::arg("count"), py::arg("dtype"), py::arg("name"),
          py::arg("shape") = 0, "One tensor, blocking: a fast path.")
      .def(
          "_time_neighbor_allreduce",
          [](Flock& self, Address address, std::size_t count, std::size_t calls) {
            const py::gil_scoped_release release;
            return seconds_of([&] {
              for (std::size_t i = 0; i < calls; ++i) {
                const std::unique_ptr<float[]> out(
                    new float[count]);  // a fresh result per call, as in Python
                ByteOperations(self)
                    .neighbor_allreduce(
                        {{{DType::float32, pointer(address), count}, {DType::float32, out.get(), count}, 0}},
                        {}, "neighbor_allreduce")
                    .wait();
              }
            });
          },
          "Seconds of this many calls from C++, for bench/python_bench.py.")
      .def(
          "start_neighbor_allreduce",
          [](Flock& self, const std::vector<Tensor>& tensors, const std::string& name, const Shapes& shapes) {
            return start_on(tensors, shapes, [&](Pieces pieces) {
              return ByteOperations(self).neighbor_allreduce(std::move(pieces), {}, name);
            });
          },
          py::arg("tensors"), py::arg("name"), py::arg("shapes") = Shapes())
      .def(
          "start_weighted_neighbor_allreduce",
          [](Flock& self, const std::vector<Tensor>& tensors, double self_weight, const WeightMap& sources,
             const WeightMap& destinations, const std::string& name, const Shapes& shapes) {
            return start_on(tensors, shapes, [&](Pieces pieces) {
              return ByteOperations(self).neighbor_allreduce(
                  std::move(pieces), {}, Weighted{self_weight, sources, destinations}, name);
            });
          },
          py::arg("tensors"), py::arg("self_weight"), py::arg("sources"), py::arg("destinations"),
          py::arg("name"), py::arg("shapes") = Shapes())
      .def(
          "start_hierarchical",
          [](Flock& self, const std::vector<Tensor>& tensors, const std::string& name, const Shapes& shapes) {
            return start_on(tensors, shapes, [&](Pieces pieces) {
              return ByteOperations(self).hierarchical_neighbor_allreduce(std::move(pieces), name);
            });
          },
          py::arg("tensors"), py::arg("name"), py::arg("shapes") = Shapes())
      .def(
          "start_weighted_hierarchical",
          [](Flock& self, const std::vector<Tensor>& tensors, double self_weight, const WeightMap& sources,
             const WeightMap& destinations, const std::string& name, const Shapes& shapes) {
            return start_on(tensors, shapes, [&](Pieces pieces) {
              return ByteOperations(self).hierarchical_neighbor_allreduce(
                  std::move(pieces), {self_weight, sources, destinations}, name);
            });
          },
          py::arg("tensors"), py::arg("self_weight"), py::arg("sources"), py::arg("destinations"),
          py::arg("name"), py::arg("shapes") = Shapes())
      .def(
          "start_allreduce",
          [](Flock& self, const std::vector<Tensor>& tensors, const std::string& reduction,
             const std::string& name, const Shapes& shapes) {
            return start_on(tensors, shapes, [&](Pieces pieces) {
              return ByteOperations(self).allreduce(std::move(pieces), reduction_of(reduction), name);
            });
          },
          py::arg("tensors"), py::arg("reduction"), py::arg("name"), py::arg("shapes") = Shapes())
      .def(
          "start_broadcast",
          [](Flock& self, const std::vector<Tensor>& tensors, Rank root, const std::string& name,
             const Shapes& shapes) {
            return start_on(tensors, shapes, [&](Pieces pieces) {
              return ByteOperations(self).broadcast(std::move(pieces), root, name);
            });
          },
          py::arg("tensors"), py::arg("root"), py::arg("name"), py::arg("shapes") = Shapes())
      .def("start_barrier",
           [](Flock& self, const std::string& name) {
             return start([&] { return self.barrier_nonblocking(name); });
           })
      .def("send",
           [](Flock& self, const Tensor& tensor, Rank to, const std::string& name) {
             refuse_in_child();
             const py::gil_scoped_release release;
             const kernel::DeviceScope scope(context_at(std::get<4>(tensor)));
             ByteOperations(self).send(source_of(tensor), to, name);
           })
      .def("start_recv", [](Flock& self, const Tensor& tensor, Rank from, const std::string& name) {
        return start([&] {
          const kernel::DeviceScope scope(context_at(std::get<4>(tensor)));
          return ByteOperations(self).recv(target_of(tensor), from, name);
        });
      });
}

// Results have a length that is not known before; `allocate` makes their memory.
void bind_gathers(py::class_<Flock>& flock) {
  flock
      .def(
          "start_allgather",
          [](Flock& self, const Tensor& tensor, const py::function& allocate, const std::string& name,
             std::uint32_t rows) {
            return start_gather(tensor, rows, allocate, [&](ConstBuffer in, Room room) {
              return ByteOperations(self).allgather(in, std::move(room), name);
            });
          },
          py::arg("tensor"), py::arg("allocate"), py::arg("name"), py::arg("rows") = 0)
      .def(
          "start_neighbor_allgather",
          [](Flock& self, const Tensor& tensor, const py::function& allocate,
             const std::vector<Rank>& sources, const std::vector<Rank>& destinations, const std::string& name,
             std::uint32_t rows) {
            return start_gather(tensor, rows, allocate, [&](ConstBuffer in, Room room) {
              return ByteOperations(self).neighbor_allgather(in, std::move(room), sources, destinations,
                                                             name);
            });
          },
          py::arg("tensor"), py::arg("allocate"), py::arg("sources"), py::arg("destinations"),
          py::arg("name"), py::arg("rows") = 0)
      .def(
          "start_reduce_scatter",
          [](Flock& self, const Tensor& tensor, const py::function& allocate, const std::string& reduction,
             const std::string& name, std::uint32_t shape) {
            return start_gather(tensor, shape, allocate, [&](ConstBuffer in, Room room) {
              return ByteOperations(self).reduce_scatter(in, std::move(room), reduction_of(reduction), name);
            });
          },
          py::arg("tensor"), py::arg("allocate"), py::arg("reduction"), py::arg("name"),
          py::arg("shape") = 0);
}

void bind_members(py::class_<Flock>& flock) {
  using NoLock = py::call_guard<py::gil_scoped_release>;
  flock.def_property_readonly("rank", &Flock::rank)
      .def_property_readonly("size", &Flock::size)
      .def_property_readonly("local_size", &Flock::local_size)
      .def_property_readonly("local_rank", &Flock::local_rank)
      .def_property_readonly("machine_rank", &Flock::machine_rank)
      .def_property_readonly("machine_size", &Flock::machine_size)
      .def_property_readonly("step", &Flock::step,
                             "The step that the next scheduled operation takes, from 0.")
      .def_property_readonly("bytes_sent", &Flock::bytes_sent, "By this rank's operations so far.")
      .def_property_readonly(
          "members", [](const Flock& self) { return self.view().members; }, "The live ranks.")
      .def("set_schedule",
           [](Flock& self, const std::shared_ptr<Schedule>& schedule) {
             self.set_schedule(SchedulePtr(schedule));
           })
      .def("set_schedule", [](Flock& self, const std::string& spec) { self.set_schedule(spec); })
      .def("set_machine_schedule",
           [](Flock& self, const std::shared_ptr<Schedule>& outer) {
             self.set_machine_schedule(SchedulePtr(outer));
           })
      .def("set_machine_schedule",
           [](Flock& self, const std::string& spec) { self.set_machine_schedule(spec); })
      .def_property_readonly(
          "schedule",
          [](const Flock& self) { return std::const_pointer_cast<Schedule>(self.current_schedule()); })
      .def_property(
          "timeout", [](const Flock& self) { return std::chrono::duration<double>(self.timeout()).count(); },
          [](Flock& self, double seconds) {
            self.set_timeout(
                std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
          },
          "Bounds every wait, in seconds.")
      .def(
          "_interrupt",
          [](Flock& self, double seconds) {
            self.interrupt(
                std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
          },
          "Operations in flight may take this much longer, until the timeout is set.")
      .def_property(
          "on_peer_failure",
          [](const Flock& self) {
            return self.on_peer_failure() == OnPeerFailure::raise ? "raise" : "reweight";
          },
          [](Flock& self, const std::string& word) {
            if (word != "raise" && word != "reweight")
              throw InvalidArgument("on_peer_failure is raise or reweight, not " + word);
            self.on_peer_failure(word == "raise" ? OnPeerFailure::raise : OnPeerFailure::reweight);
          },
          "What happens when a rank dies: raise PeerLost, or reweight and continue among the survivors.")
      .def(
          "admit",
          [](Flock& self, const py::object& next) {
            const py::gil_scoped_release release;
            if (next.is_none()) return self.admit();
            return self.admit([&](Rank size) {
              return ask_python(
                  [&]() -> SchedulePtr { return next(size).cast<std::shared_ptr<Schedule>>(); });
            });
          },
          py::arg("next") = py::none(),
          "Admits waiting newcomers: the larger flock, or the same one if none wait.")
      .def_property_readonly("newcomers", &Flock::newcomers)
      .def_property_readonly("entered", &Flock::entered)
      .def_property_readonly(
          "exchanges_device_memory",
          [](const Flock& self) {
            return ByteOperations(self).has_messages_in(MemoryKind::cuda) && kernel::why_no_device().empty();
          },
          "Whether operations work on CUDA memory directly, without copies to the host.")
      .def("__eq__", [](const Flock& self, const Flock& other) { return self == other; })
      .def("has_window", &Flock::has_window)
      .def("set_allreduce", &Flock::set_allreduce)
      .def("split", &Flock::split, py::arg("color"), py::arg("key") = 0, NoLock())
      .def(
          "split",
          [](Flock& self, std::int64_t color, std::int64_t key) {
            warn_deprecated("split(colour=)", "split(color=)");
            const py::gil_scoped_release release;
            return self.split(color, key);
          },
          py::kw_only(), py::arg("colour"), py::arg("key") = 0)
      .def(
          "group", [](Flock& self, const std::vector<Rank>& ranks) { return self.group(ranks); },
          py::arg("ranks"), NoLock())
      .def(
          "_address", [](Flock& self) { return reinterpret_cast<Address>(&self); }, "For starling._torch.");
}

}  // namespace

void bind_flock(py::module_& module) {
  bind_pending(module);
  py::class_<Flock> flock(module, "Flock",
                          "The group this process has joined. Tensors are (from, to, count, dtype).");
  bind_members(flock);
  bind_operations(flock);
  bind_gathers(flock);
  module.def("join", &join_now, "Joins the flock this process was started in, or makes a flock of one.");
  module.def("launched_ranks", &launched_ranks);
  module.def(
      "flock_at", [](Address at) { return *reinterpret_cast<Flock*>(at); },  // NOLINT: from starling._torch
      "A handle of a flock that starling._torch has.");
  module.def(
      "flock_over",
      [](Address fabric) {
        const std::unique_ptr<std::shared_ptr<Fabric>> owned(
            reinterpret_cast<std::shared_ptr<Fabric>*>(fabric));  // NOLINT: from starling._torch
        return Flock(*owned);
      },
      "The flock over a fabric that starling._torch made.");
  py::dict dtypes;
  for (int code = 0; code <= static_cast<int>(DType::uint8); ++code)
    dtypes[py::str(name(static_cast<DType>(code)))] = code;
  module.attr("dtypes") = dtypes;
}

}  // namespace starling::python
