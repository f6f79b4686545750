#include "starling/train/torch_update.h"

#include <fmt/format.h>
#include <typeinfo>

#include "starling/base/error.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/reduce.h"

namespace starling {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

/// Runs the user's optimizer on the parameters of one bucket.
class ForeignUpdate final : public Update {
 public:
  ForeignUpdate(torch::optim::Optimizer& optimizer, torch::Tensor x, std::vector<Placed> parameters)
      : optimizer_(optimizer), x_(std::move(x)), parameters_(std::move(parameters)) {}

  std::string name() const override { return c10::demangle(typeid(optimizer_).name()); }

  void apply(const Stride& stride, std::span<const Segment> segments) override {
    const DType dtype = dtype_of_tensor(x_);
    void* own = x_.data_ptr();
    Stride into_own = stride;
    into_own.x = own;
    into_own.copy = nullptr;
    copy_through(dtype, into_own);
    step_along(dtype, stride, segments);
    const std::size_t bytes = stride.count * size_of(dtype);
    if (stride.x != own) copy_bytes(stride.x, own, bytes);
    if (stride.copy != nullptr) copy_bytes(stride.copy, own, bytes);
  }

 private:
  // The optimizer sees these parameters only, and as their gradient the direction given.
  void step_along(DType dtype, const Stride& stride, std::span<const Segment> segments) {
    std::vector<std::vector<torch::Tensor>> groups(optimizer_.param_groups().size());
    std::vector<torch::Tensor> gradients;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Placed& placed = parameters_[i];
      gradients.push_back(placed.parameter.grad());
      if (!segments[i].active) continue;
      auto* direction =
          static_cast<std::byte*>(const_cast<void*>(stride.gradient)) + placed.offset * size_of(dtype);
      torch::Tensor gradient = torch::from_blob(direction, placed.parameter.sizes(),
                                                placed.parameter.options().requires_grad(false));
      if (stride.gradient_scale != 1) gradient = gradient * stride.gradient_scale;
      placed.parameter.mutable_grad() = gradient;
      groups[placed.group].push_back(placed.parameter);
    }
    const auto swap_groups = [&] {
      for (std::size_t g = 0; g < groups.size(); ++g)
        std::swap(optimizer_.param_groups()[g].params(), groups[g]);
    };
    swap_groups();
    try {
      optimizer_.step();
    } catch (...) {
      swap_groups();
      throw;
    }
    swap_groups();
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      parameters_[i].parameter.mutable_grad() = gradients[i];
  }

  torch::optim::Optimizer& optimizer_;
  torch::Tensor x_;  // the bucket's
  std::vector<Placed> parameters_;
};

template <typename Options>
Hyper adam_hyper(const Options& options) {
  Hyper hyper;
  hyper.lr = options.lr();
  hyper.weight_decay = options.weight_decay();
  std::tie(hyper.beta1, hyper.beta2) = options.betas();
  hyper.eps = options.eps();
  hyper.decoupled = std::is_same_v<Options, AdamWOptions>;
  return hyper;
}

Hyper hyper_of(const std::string& native, const torch::optim::OptimizerOptions& options) {
  if (native == "adam") return adam_hyper(static_cast<const AdamOptions&>(options));
  if (native == "adamw") return adam_hyper(static_cast<const AdamWOptions&>(options));
  Hyper hyper;
  hyper.lr = options.get_lr();
  if (native != "sgd") return hyper;
  const auto& sgd = static_cast<const SGDOptions&>(options);
  hyper.momentum = sgd.momentum();
  hyper.dampening = sgd.dampening();
  hyper.weight_decay = sgd.weight_decay();
  hyper.nesterov = sgd.nesterov();
  return hyper;
}

template <typename Options>
bool keeps_maximum(torch::optim::Optimizer& optimizer) {
  for (auto& group : optimizer.param_groups())
    if (static_cast<Options&>(group.options()).amsgrad()) return true;
  return false;
}

std::string native_name(torch::optim::Optimizer& optimizer) {
  if (typeid(optimizer) == typeid(torch::optim::SGD)) return "sgd";
  if (typeid(optimizer) == typeid(torch::optim::Adam) && !keeps_maximum<AdamOptions>(optimizer))
    return "adam";
  if (typeid(optimizer) == typeid(torch::optim::AdamW) && !keeps_maximum<AdamWOptions>(optimizer))
    return "adamw";
  return {};
}

// A parameter's part of a vector of its bucket, as a tensor; empty where there is no such vector.
torch::Tensor part(const std::vector<NamedState>& state, const std::string& name, const Placed& placed) {
  for (const NamedState& one : state) {
    if (one.name != name) continue;
    auto* from = static_cast<std::byte*>(one.data.data) + placed.offset * size_of(one.data.dtype);
    return torch::from_blob(from, placed.parameter.sizes(), placed.parameter.options().requires_grad(false));
  }
  return {};
}

std::int64_t& steps_of(const std::vector<NamedState>& state, const Placed& placed) {
  return static_cast<std::int64_t*>(state[0].data.data)[placed.segment];
}

// As if it had never been updated.
void forget(const std::vector<NamedState>& state, const Placed& placed) {
  steps_of(state, placed) = 0;
  for (std::size_t i = 1; i < state.size(); ++i) part(state, state[i].name, placed).zero_();
}

template <typename State>
void export_adam(State& to, const std::vector<NamedState>& state, const Placed& placed) {
  to.step(steps_of(state, placed));
  to.exp_avg(part(state, "m", placed).clone());
  to.exp_avg_sq(part(state, "v", placed).clone());
  // AccumAdam's third vector rests where amsgrad, which is not native, has its own.
  const torch::Tensor sum = part(state, "sum", placed);
  if (sum.defined()) to.max_exp_avg_sq(sum.clone());
}

template <typename State>
void import_adam(const State& from, const std::vector<NamedState>& state, const Placed& placed) {
  steps_of(state, placed) = from.step();
  part(state, "m", placed).copy_(from.exp_avg());
  part(state, "v", placed).copy_(from.exp_avg_sq());
  const torch::Tensor sum = part(state, "sum", placed);
  if (sum.defined() && from.max_exp_avg_sq().defined()) sum.copy_(from.max_exp_avg_sq());
}

}  // namespace

TorchOptimizer::TorchOptimizer(torch::optim::Optimizer& optimizer)
    : optimizer_(optimizer),
      native_(native_name(optimizer)),
      hypers_(std::make_shared<std::vector<Hyper>>(optimizer.param_groups().size())) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr)
    throw InvalidArgument(
        "LBFGS computes the loss several times per step, between which nothing could be averaged; "
        "SGD, Adam, AdamW, RMSprop, Adagrad and others with one gradient per step work");
  read_settings();
}

void TorchOptimizer::read_settings() {
  for (std::size_t g = 0; g < hypers_->size(); ++g)
    (*hypers_)[g] = hyper_of(native_, optimizer_.param_groups()[g].options());
}

UpdatePtr TorchOptimizer::make_update(const std::vector<Placed>& all, const Bucket& bucket) const {
  const MutableBlock x = bucket.x_block();
  const bool wide_enough = x.dtype == DType::float32 || x.dtype == DType::float64;
  const std::size_t segments = bucket.parameters.size();
  if (wide_enough && native_ == "sgd") return make_sgd(x.dtype, x.count, segments, hypers_);
  if (wide_enough && !native_.empty())
    return make_adam(x.dtype, x.count, segments, hypers_, native_ == "adamw");
  std::vector<Placed> parameters;
  for (const std::size_t i : bucket.parameters) parameters.push_back(all[i]);
  return std::make_unique<ForeignUpdate>(optimizer_, bucket.x, std::move(parameters));
}

void TorchOptimizer::export_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) const {
  if (native_.empty()) return;
  const torch::NoGradGuard no_grad;
  for (const Placed& placed : all) {
    const auto state = updates[placed.bucket]->state();
    if (state.empty() || steps_of(state, placed) == 0) continue;
    auto& to = optimizer_.state()[state_key(placed.parameter)];
    if (native_ == "sgd") {
      auto made = std::make_unique<torch::optim::SGDParamState>();
      made->momentum_buffer(part(state, "momentum", placed).clone());
      to = std::move(made);
    } else if (native_ == "adam") {
      auto made = std::make_unique<torch::optim::AdamParamState>();
      export_adam(*made, state, placed);
      to = std::move(made);
    } else {
      auto made = std::make_unique<torch::optim::AdamWParamState>();
      export_adam(*made, state, placed);
      to = std::move(made);
    }
  }
}

void TorchOptimizer::import_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) const {
  if (native_.empty()) return;
  const torch::NoGradGuard no_grad;
  for (const Placed& placed : all) {
    const auto found = optimizer_.state().find(state_key(placed.parameter));
    const auto state = updates[placed.bucket]->state();
    if (state.empty()) continue;
    if (found == optimizer_.state().end()) {
      forget(state, placed);
      continue;
    }
    if (native_ == "adam") {
      import_adam(static_cast<const torch::optim::AdamParamState&>(*found->second), state, placed);
    } else if (native_ == "adamw") {
      import_adam(static_cast<const torch::optim::AdamWParamState&>(*found->second), state, placed);
    } else {
      const auto& from = static_cast<const torch::optim::SGDParamState&>(*found->second).momentum_buffer();
      const torch::Tensor to = part(state, "momentum", placed);
      if (!from.defined() || !to.defined()) continue;
      steps_of(state, placed) = 1;
      to.copy_(from);
    }
  }
}

}  // namespace starling
