#include "python_optimizer.h"

#include <algorithm>
#include <unordered_set>

#include "starling/base/error.h"
#include "starling/train/description.h"

namespace starling::python {
namespace {

double number(const py::dict& group, const char* key, double otherwise) {
  if (!group.contains(key) || group[key].is_none()) return otherwise;
  return py::float_(group[key]);  // converts a tensor of one element, too
}

bool flag(const py::dict& group, const char* key) {
  return group.contains(key) && py::bool_(group[key]);
}

Hyper hyper_of(const std::string& native, const py::dict& group) {
  Hyper hyper;
  hyper.lr = number(group, "lr", hyper.lr);
  if (native.empty()) return hyper;
  hyper.weight_decay = number(group, "weight_decay", 0);
  hyper.decoupled = native == "adamw";
  if (native == "sgd") {
    hyper.momentum = number(group, "momentum", 0);
    hyper.dampening = number(group, "dampening", 0);
    hyper.nesterov = flag(group, "nesterov");
    return hyper;
  }
  const auto betas = py::sequence(group["betas"]);
  hyper.beta1 = py::float_(betas[0]);
  hyper.beta2 = py::float_(betas[1]);
  hyper.eps = number(group, "eps", hyper.eps);
  return hyper;
}

// Keys of a group that do not change the result: the parameters, schedulers' notes, and how torch computes.
bool is_irrelevant(const std::string& key) {
  static const std::unordered_set<std::string> keys = {"params", "param_names", "initial_lr",    "foreach",
                                                       "fused",  "capturable",  "differentiable"};
  return keys.contains(key);
}

// A setting as text that is the same in every process; objects of unknown types only by their class.
std::string described(const py::handle& value) {
  if (py::isinstance<py::bool_>(value) || value.is_none() || py::isinstance<py::str>(value) ||
      py::isinstance<py::int_>(value))
    return py::str(value);
  if (py::isinstance<py::float_>(value)) return describe_number(value.cast<double>());
  if (py::isinstance<py::tuple>(value) || py::isinstance<py::list>(value)) {
    std::string all;
    for (const py::handle one : value) all += (all.empty() ? "" : ", ") + described(one);
    return "(" + all + ")";
  }
  if (py::hasattr(value, "numel") && py::hasattr(value, "item") && value.attr("numel")().cast<int>() == 1)
    return described(value.attr("item")());
  return py::str(py::type::of(value).attr("__name__"));
}

// The native name and torch's name of a state vector.
struct Vector {
  const char* native;
  const char* torch;
};
constexpr Vector kAdam[] = {{"m", "exp_avg"}, {"v", "exp_avg_sq"}, {"sum", "starling_sum"}};
constexpr Vector kSgd[] = {{"momentum", "momentum_buffer"}};

std::span<const Vector> vectors_of(const std::string& native) {
  return native == "sgd" ? std::span<const Vector>(kSgd) : std::span<const Vector>(kAdam);
}

}  // namespace

PythonOptimizer::PythonOptimizer(py::object reference, std::string name, std::string native,
                                 py::function step)
    : LocalOptimizer(std::move(native), py::len(reference().attr("param_groups"))),
      reference_(std::move(reference)),
      name_(std::move(name)),
      step_(std::move(step)) {
  read_settings();
}

PythonOptimizer::~PythonOptimizer() {
  const py::gil_scoped_acquire acquire;
  reference_ = py::object();
  step_ = py::function();
}

py::object PythonOptimizer::optimizer() const {
  py::object found = reference_();
  if (found.is_none())
    throw Error(name_ + " was deleted, but its trainer still needs it; keep a reference to the optimizer");
  return found;
}

std::vector<std::vector<torch::Tensor>> PythonOptimizer::groups() const {
  const py::gil_scoped_acquire acquire;
  std::vector<std::vector<torch::Tensor>> all;
  for (const py::handle group : optimizer().attr("param_groups"))
    all.push_back(group["params"].cast<std::vector<torch::Tensor>>());
  return all;
}

std::vector<LocalOptimizer::Settings> PythonOptimizer::settings() const {
  const py::gil_scoped_acquire acquire;
  std::vector<Settings> all;
  for (const py::handle one : optimizer().attr("param_groups")) {
    Settings& settings = all.emplace_back();
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(one)) {
      const std::string name = py::str(key);
      if (!is_irrelevant(name)) settings.emplace_back(name, described(value));
    }
    std::sort(settings.begin(), settings.end());
  }
  return all;
}

void PythonOptimizer::read_settings() {
  const py::gil_scoped_acquire acquire;
  const py::list now = optimizer().attr("param_groups");
  check_groups(now.size());
  for (std::size_t g = 0; g < hypers()->size(); ++g) {
    const auto group = py::reinterpret_borrow<py::dict>(now[g]);
    check_group(g, py::len(group["params"]));
    (*hypers())[g] = hyper_of(native(), group);
  }
}

// Of all parameters at once; those without a gradient are not updated, as in torch.
void PythonOptimizer::step(std::vector<std::vector<torch::Tensor>>&) {
  const py::gil_scoped_acquire acquire;
  step_();
}

void PythonOptimizer::export_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) {
  if (native().empty()) return;
  const py::gil_scoped_acquire acquire;
  const torch::NoGradGuard no_grad;
  const py::object memory = optimizer().attr("state");
  for (const Placed& placed : all) {
    const auto state = updates[placed.bucket]->state();
    if (state.empty() || steps_of(state, placed) == 0) continue;
    py::dict one;
    if (native() != "sgd") one["step"] = torch::tensor(static_cast<float>(steps_of(state, placed)));
    for (const Vector& vector : vectors_of(native())) {
      const torch::Tensor part = state_part(state, vector.native, placed);
      if (part.defined()) one[vector.torch] = part.clone().to(placed.parameter.device());
    }
    memory[py::cast(placed.parameter)] = one;
  }
}

void PythonOptimizer::import_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) {
  if (native().empty()) return;
  const py::gil_scoped_acquire acquire;
  const torch::NoGradGuard no_grad;
  const py::object memory = optimizer().attr("state");
  for (const Placed& placed : all) {
    const auto state = updates[placed.bucket]->state();
    if (state.empty()) continue;
    const py::object key = py::cast(placed.parameter);
    forget_state(state, placed);
    if (!memory.contains(key)) continue;
    const py::dict one = memory[key];
    bool remembers = false;
    for (const Vector& vector : vectors_of(native())) {
      const torch::Tensor part = state_part(state, vector.native, placed);
      if (!part.defined() || !one.contains(vector.torch) || one[vector.torch].is_none()) continue;
      part.copy_(one[vector.torch].cast<torch::Tensor>());
      remembers = true;
    }
    if (remembers)
      steps_of(state, placed) = native() == "sgd" ? 1 : static_cast<std::int64_t>(number(one, "step", 0));
  }
}

// In the format of torch.save.
std::string PythonOptimizer::saved(bool memory) const {
  const py::gil_scoped_acquire acquire;
  const py::object out = py::module_::import("io").attr("BytesIO")();
  const py::object base = py::module_::import("torch.optim").attr("Optimizer");
  py::dict content = base.attr("state_dict")(optimizer());
  if (!memory) content["state"] = py::dict();
  try {
    py::module_::import("torch").attr("save")(content, out);
  } catch (const py::error_already_set& error) {
    throw InvalidArgument(name() + " cannot be saved: " + error.what());
  }
  return py::bytes(out.attr("getvalue")());
}

void PythonOptimizer::restore(const std::string& text, bool memory) {
  const py::gil_scoped_acquire acquire;
  const py::object in = py::module_::import("io").attr("BytesIO")(py::bytes(text));
  const py::object base = py::module_::import("torch.optim").attr("Optimizer");
  try {
    py::dict content = py::module_::import("torch").attr("load")(in);
    if (!memory) content["state"] = py::dict(base.attr("state_dict")(optimizer()))["state"];
    base.attr("load_state_dict")(optimizer(), content);
  } catch (const py::error_already_set& error) {
    throw Error("another optimizer than " + name() + " was saved: " + error.what());
  }
}

}  // namespace starling::python
