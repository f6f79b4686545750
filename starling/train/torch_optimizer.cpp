#include "starling/train/torch_optimizer.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <typeinfo>

#include "starling/base/error.h"
#include "starling/train/description.h"

namespace starling::train {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

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

// The settings of options that only torch knows: what they write to an archive.
LocalOptimizer::Settings serialized_settings(const torch::optim::OptimizerOptions& options) {
  torch::serialize::OutputArchive out;
  options.serialize(out);
  std::stringstream text;
  out.save_to(text);
  torch::serialize::InputArchive in;
  in.load_from(text);
  LocalOptimizer::Settings settings;
  for (const std::string& key : in.keys()) {
    c10::IValue value;
    if (key == "lr" || !in.try_read(key, value)) continue;
    std::ostringstream shown;
    if (value.isDouble())
      shown << describe_number(value.toDouble());
    else
      shown << value;
    settings.emplace_back(key, shown.str());
  }
  std::sort(settings.begin(), settings.end());
  return settings;
}

template <typename State>
void export_adam(State& to, const std::vector<NamedState>& state, const Placed& placed) {
  to.step(steps_of(state, placed));
  to.exp_avg(state_part(state, "m", placed).clone());
  to.exp_avg_sq(state_part(state, "v", placed).clone());
  // AccumAdam's third vector is stored where amsgrad, which is not native, keeps its own.
  const torch::Tensor sum = state_part(state, "sum", placed);
  if (sum.defined()) to.max_exp_avg_sq(sum.clone());
}

template <typename State>
void import_adam(const State& from, const std::vector<NamedState>& state, const Placed& placed) {
  steps_of(state, placed) = from.step();
  state_part(state, "m", placed).copy_(from.exp_avg());
  state_part(state, "v", placed).copy_(from.exp_avg_sq());
  const torch::Tensor sum = state_part(state, "sum", placed);
  if (sum.defined() && from.max_exp_avg_sq().defined()) sum.copy_(from.max_exp_avg_sq());
}

std::string key_of_group(std::size_t group) {
  return "settings of group " + std::to_string(group);
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_torch_optimizer(std::string_view text,
                                                              const std::vector<torch::Tensor>& parameters) {
  const Hyper hyper = parse_optimizer(text).hyper;
  const std::string name = parse_spec(text).word;
  const auto betas = std::make_tuple(hyper.beta1, hyper.beta2);
  if (name == "adam")
    return std::make_unique<torch::optim::Adam>(
        parameters,
        torch::optim::AdamOptions(hyper.lr).betas(betas).eps(hyper.eps).weight_decay(hyper.weight_decay));
  if (name == "adamw")
    return std::make_unique<torch::optim::AdamW>(
        parameters,
        torch::optim::AdamWOptions(hyper.lr).betas(betas).eps(hyper.eps).weight_decay(hyper.weight_decay));
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(hyper.lr)
                                                             .momentum(hyper.momentum)
                                                             .nesterov(hyper.nesterov)
                                                             .weight_decay(hyper.weight_decay));
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double lr) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(lr);
}

std::string saved_optimizer(const torch::optim::Optimizer& optimizer, bool memory) {
  torch::serialize::OutputArchive archive;
  if (memory) optimizer.save(archive);
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    torch::serialize::OutputArchive settings(archive.compilation_unit());
    optimizer.param_groups()[g].options().serialize(settings);
    archive.write(key_of_group(g), settings);
  }
  std::ostringstream out;
  archive.save_to(out);
  return out.str();
}

void restore_optimizer(torch::optim::Optimizer& optimizer, const std::string& text, bool memory) {
  std::istringstream in(text);
  torch::serialize::InputArchive archive;
  archive.load_from(in);
  if (memory) {
    optimizer.state().clear();
    optimizer.load(archive);
  }
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    torch::serialize::InputArchive settings;
    archive.read(key_of_group(g), settings);
    optimizer.param_groups()[g].options().serialize(settings);
  }
}

TorchOptimizer::TorchOptimizer(torch::optim::Optimizer& optimizer)
    : LocalOptimizer(native_name(optimizer), optimizer.param_groups().size()), optimizer_(optimizer) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr)
    throw InvalidArgument(
        "LBFGS computes the loss several times per step, between which nothing could be averaged; "
        "SGD, Adam, AdamW, RMSprop, Adagrad and others with one gradient per step work");
  read_settings();
}

std::string TorchOptimizer::name() const {
  return c10::demangle(typeid(optimizer_).name());
}

std::vector<std::vector<torch::Tensor>> TorchOptimizer::groups() const {
  std::vector<std::vector<torch::Tensor>> all;
  for (const auto& group : optimizer_.param_groups()) all.push_back(group.params());
  return all;
}

std::vector<LocalOptimizer::Settings> TorchOptimizer::settings() const {
  std::vector<Settings> all;
  for (std::size_t g = 0; g < optimizer_.param_groups().size(); ++g) all.push_back(settings_of(g));
  return all;
}

LocalOptimizer::Settings TorchOptimizer::settings_of(std::size_t g) const {
  const torch::optim::OptimizerOptions& options = optimizer_.param_groups()[g].options();
  const Hyper hyper = hyper_of(native(), options);
  Settings settings = {{"lr", describe_number(hyper.lr)}};
  if (!native().empty()) {
    settings.emplace_back("weight_decay", describe_number(hyper.weight_decay));
    if (native() == "sgd") {
      settings.emplace_back("momentum", describe_number(hyper.momentum));
      settings.emplace_back("dampening", describe_number(hyper.dampening));
      settings.emplace_back("nesterov", hyper.nesterov ? "true" : "false");
    } else {
      settings.emplace_back(
          "betas", fmt::format("({}, {})", describe_number(hyper.beta1), describe_number(hyper.beta2)));
      settings.emplace_back("eps", describe_number(hyper.eps));
    }
  } else if (serializes_) {
    try {
      for (auto& one : serialized_settings(options)) settings.push_back(std::move(one));
    } catch (const c10::Error&) {
      serializes_ = false;  // only the learning rate is known
    }
  }
  return settings;
}

void TorchOptimizer::read_settings() {
  auto& groups = optimizer_.param_groups();
  check_groups(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    check_group(g, groups[g].params().size());
    (*hypers())[g] = hyper_of(native(), groups[g].options());
  }
}

void TorchOptimizer::step(std::vector<std::vector<torch::Tensor>>& groups) {
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
}

std::string TorchOptimizer::saved(bool memory) const {
  try {
    return saved_optimizer(optimizer_, memory);
  } catch (const c10::Error&) {
    throw InvalidArgument("the optimizer or its options do not implement save() and serialize()");
  }
}

void TorchOptimizer::restore(const std::string& text, bool memory) {
  try {
    restore_optimizer(optimizer_, text, memory);
  } catch (const c10::Error& error) {
    throw Error(
        fmt::format("another optimizer than {} was saved: {}", name(), error.what_without_backtrace()));
  }
}

void TorchOptimizer::export_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) {
  if (native().empty()) return;
  const torch::NoGradGuard no_grad;
  for (const Placed& placed : all) {
    const auto state = updates[placed.bucket]->state();
    if (state.empty() || steps_of(state, placed) == 0) continue;
    auto& to = optimizer_.state()[state_key(placed.parameter)];
    if (native() == "sgd") {
      auto made = std::make_unique<torch::optim::SGDParamState>();
      made->momentum_buffer(state_part(state, "momentum", placed).clone());
      to = std::move(made);
    } else if (native() == "adam") {
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

void TorchOptimizer::import_state(const std::vector<Placed>& all, const std::vector<Update*>& updates) {
  if (native().empty()) return;
  const torch::NoGradGuard no_grad;
  for (const Placed& placed : all) {
    const auto found = optimizer_.state().find(state_key(placed.parameter));
    const auto state = updates[placed.bucket]->state();
    if (state.empty()) continue;
    if (found == optimizer_.state().end()) {
      forget_state(state, placed);
      continue;
    }
    if (native() == "adam") {
      import_adam(static_cast<const torch::optim::AdamParamState&>(*found->second), state, placed);
    } else if (native() == "adamw") {
      import_adam(static_cast<const torch::optim::AdamWParamState&>(*found->second), state, placed);
    } else {
      const auto& from = static_cast<const torch::optim::SGDParamState&>(*found->second).momentum_buffer();
      const torch::Tensor to = state_part(state, "momentum", placed);
      if (!from.defined() || !to.defined()) continue;
      steps_of(state, placed) = 1;
      to.copy_(from);
    }
  }
}

}  // namespace starling::train
