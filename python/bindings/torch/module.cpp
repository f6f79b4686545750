#include <torch/extension.h>

#include "adopt.h"
#include "ask_python.h"
#include "errors.h"
#include "python_optimizer.h"
#include "starling/flock/flock.h"
#include "starling/method/saved_state.h"
#include "starling/train/sampler.h"
#include "starling/train/trainer.h"

// The module starling._torch: the Trainer for modules and optimizers of Python. Flocks and schedules are
// passed from starling._core as addresses, since torch may bring another version of pybind11.
namespace starling::python {
namespace {

using Address = std::uintptr_t;
using NoLock = py::call_guard<py::gil_scoped_release>;

ModuleTensors module_tensors(const py::function& parameters, const py::function& buffers) {
  const auto ask = [](const py::function& function) {
    // The thread that drops the last copy of the function must hold the interpreter lock.
    const std::shared_ptr<py::function> shared(new py::function(function), [](py::function* one) {
      const py::gil_scoped_acquire acquire;
      delete one;
    });
    return [shared] {
      const py::gil_scoped_acquire acquire;
      return (*shared)().cast<ModuleTensors::Named>();
    };
  };
  return {ask(parameters), ask(buffers)};
}

std::function<void()> without_result(const py::object& callback) {
  if (callback.is_none()) return nullptr;
  const std::shared_ptr<py::object> shared(new py::object(callback), [](py::object* one) {
    const py::gil_scoped_acquire acquire;
    delete one;
  });
  return [shared] {
    const py::gil_scoped_acquire acquire;
    (*shared)();
  };
}

// The schedule at an address from starling._core.
SchedulePtr schedule_at(const py::handle& address) {
  return *reinterpret_cast<const std::shared_ptr<Schedule>*>(address.cast<Address>());  // NOLINT
}

bool admit(Trainer& trainer, const py::function& schedule_of_flock) {
  const py::gil_scoped_release release;
  return trainer.admit(
      [&](Rank size) { return ask_python([&] { return schedule_at(schedule_of_flock(size)); }); });
}

TrainerOptions read_options(const py::dict& given) {
  TrainerOptions options;
  options.maker = "decentralize()";
  options.caller = "optimizer.";
  const auto take = [&](const char* key, auto& to) {
    if (given.contains(key) && !given[key].is_none())
      to = given[key].cast<std::remove_reference_t<decltype(to)>>();
  };
  take("method", options.method);
  take("topology", options.topology);
  take("seed", options.seed);
  take("bucket_mb", options.bucket_mb);
  take("message", options.message);
  take("accumulation", options.accumulation);
  take("clip_norm", options.clip_norm);
  take("eager", options.eager);
  take("loss_scale", options.loss_scale);
  take("on_nonfinite", options.on_nonfinite);
  take("buffers", options.buffers);
  take("on_peer_failure", options.on_peer_failure);
  take("broadcast_at_start", options.broadcast_at_start);
  take("per_rank_settings", options.per_rank_settings);
  take("master_weights", options.master_weights);
  take("through_host", options.through_host);
  take("name", options.name);
  if (given.contains("after_backward")) options.after_backward = without_result(given["after_backward"]);
  if (given.contains("schedule")) options.schedule = schedule_at(given["schedule"]);
  return options;
}

std::unique_ptr<Trainer> make_trainer(Address flock, const py::function& parameters,
                                      const py::function& buffers, const py::object& optimizer,
                                      const std::string& name, const std::string& native,
                                      const py::function& step, const py::dict& options) {
  Flock joined = *reinterpret_cast<Flock*>(flock);  // NOLINT: from starling._core
  auto local = std::make_unique<PythonOptimizer>(optimizer, name, native, step);
  ModuleTensors module = module_tensors(parameters, buffers);
  TrainerOptions read = read_options(options);
  const py::gil_scoped_release release;
  return std::make_unique<Trainer>(std::move(joined), std::move(module), std::move(local), std::move(read));
}

void save_file(Trainer& trainer, const std::string& path) {
  SavedParts parts;
  trainer.save_parts(parts);
  write_own_checkpoint_file(path, trainer.flock().rank(), {}, parts.parts());
}

// Python's extra values are stored as one tensor of bytes, written by torch.save.
const std::string kPythonValues = "python";

void save(Trainer& trainer, const std::string& folder, int keep, const py::object& extra, bool background) {
  SaveOptions options{keep, {}, background};
  if (!extra.is_none()) options.extra.emplace(kPythonValues, extra.cast<torch::Tensor>());
  const py::gil_scoped_release release;
  trainer.save(folder, options);
}

py::object resume(Trainer& trainer, const std::string& folder, std::optional<Step> step) {
  std::optional<Resumed> resumed;
  {
    const py::gil_scoped_release release;
    resumed = trainer.resume(folder, step);
  }
  if (!resumed) return py::none();
  const auto found = resumed->extra.find(kPythonValues);
  const py::object extra = found == resumed->extra.end() ? py::none() : py::cast(found->second.toTensor());
  return py::make_tuple(resumed->step, extra, resumed->reset);
}

/// Makes the parameters the mean model, from enter to exit.
class Averaging {
 public:
  explicit Averaging(Trainer& trainer) : trainer_(trainer) {}
  void enter() { averaged_.emplace(trainer_.global_average()); }
  void exit() { averaged_.reset(); }
  void keep() {
    averaged_->keep();
    averaged_.reset();
  }

 private:
  Trainer& trainer_;
  std::optional<Trainer::Averaged> averaged_;
};

}  // namespace

PYBIND11_MODULE(_torch, module) {
  translate_exceptions();
  module.def(
      "adopt",
      [](const std::vector<py::object>& groups, const py::object& store) {
        return reinterpret_cast<Address>(adopt_groups(groups, store));
      },
      "A fabric over three process groups of the same ranks, for starling._core.flock_over.");
  module.def(
      "check_same_split",
      [](Address flock, std::size_t count, const std::optional<std::string>& labels,
         const std::string& partition, std::uint64_t seed, bool shuffle, bool even) {
        Samples samples{count, {}};
        if (labels) samples.labels = {reinterpret_cast<const std::uint8_t*>(labels->data()), labels->size()};
        check_same_split(*reinterpret_cast<Flock*>(flock), samples,  // NOLINT: from starling._core
                         {partition, seed, shuffle, even});
      },
      NoLock(), "Raises where ranks would split their data differently; a collective.");
  py::class_<Averaging>(module, "Averaging")
      .def("enter", &Averaging::enter, NoLock())
      .def("exit", &Averaging::exit, NoLock())
      .def("keep", &Averaging::keep, NoLock());
  py::class_<Trainer>(module, "Trainer")
      .def(py::init(&make_trainer))
      .def("zero_grad", &Trainer::zero_grad, NoLock())
      .def("zero_gradients", &Trainer::zero_gradients, NoLock())
      .def("begin", &Trainer::begin, NoLock())
      .def("scale", &Trainer::scale)
      .def("finish_gradients", &Trainer::finish_gradients, NoLock())
      .def("step", &Trainer::step, NoLock())
      .def("skip", &Trainer::skip, NoLock())
      .def("leave_overflows_to_scaler", &Trainer::leave_overflows_to_scaler)
      .def("begin_epoch", &Trainer::begin_epoch, NoLock())
      .def("finish_epoch", &Trainer::finish_epoch, NoLock())
      .def("admit", &admit)
      .def("_flock", [](Trainer& self) { return reinterpret_cast<Address>(&self.flock()); })
      .def("settle", &Trainer::settle, NoLock())
      .def("set_per_rank_settings", &Trainer::set_per_rank_settings, NoLock())
      .def("broadcast_parameters", &Trainer::broadcast_parameters, NoLock())
      .def("broadcast_optimizer_state", &Trainer::broadcast_optimizer_state, NoLock())
      .def("export_optimizer_state", &Trainer::export_optimizer_state, NoLock())
      .def("import_optimizer_state", &Trainer::import_optimizer_state, NoLock())
      .def("flat_parameters", &Trainer::flat_parameters)
      .def("flat_parameters_changed", &Trainer::flat_parameters_changed, NoLock())
      .def("save", &save)
      .def("resume", &resume)
      .def("save_file", &save_file, NoLock())
      .def(
          "restore_file", [](Trainer& self, const std::string& path) { self.restore(CheckpointFile(path)); },
          NoLock())
      .def("parameters_changed", &Trainer::parameters_changed, NoLock())
      .def("consensus_distance", &Trainer::consensus_distance, NoLock())
      .def(
          "averaging", [](Trainer& self) { return Averaging(self); }, py::keep_alive<0, 1>())
      .def_property_readonly("steps", &Trainer::steps)
      .def_property_readonly("loss_scale", &Trainer::loss_scale)
      .def_property_readonly("gradient_norm", &Trainer::gradient_norm)
      .def_property_readonly("waited", &Trainer::waited)
      .def_property_readonly("combined", &Trainer::combined)
      .def_property_readonly("sends_gradients", &Trainer::sends_gradients)
      .def_property_readonly("buckets", &Trainer::buckets)
      .def_property_readonly("parameter_count", &Trainer::parameter_count);
}

}  // namespace starling::python
