#include "starling/train/local_optimizer.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/arithmetic.h"
#include "starling/train/device_tensors.h"

namespace starling::train {

/// The update of one bucket by the user's optimizer.
class LocalOptimizer::ForeignUpdate final : public Update {
 public:
  ForeignUpdate(LocalOptimizer& optimizer, const Bucket& bucket, std::vector<Placed> parameters)
      : optimizer_(optimizer), bucket_(bucket), parameters_(std::move(parameters)) {}

  std::string name() const override { return optimizer_.name(); }

  void apply(const UpdatePass& pass, std::span<const Segment> segments) override {
    const Buffer own = bucket_.x_block();
    UpdatePass into_own = pass;
    into_own.x = own;
    start_from(into_own);
    bucket_.publish_x();
    step_along(pass, segments);
    bucket_.fetch_x();
    const kernel::Arithmetic& arithmetic = kernel::arithmetic_in(own.memory);
    if (pass.nonfinite != nullptr && !arithmetic.all_finite(own)) *pass.nonfinite = true;
    if (pass.x.address() != own.address()) arithmetic.copy(pass.x, own);
    write_copies(into_own);
  }

 private:
  // Shows the optimizer only the active parameters, with the given direction as their gradient.
  void step_along(const UpdatePass& pass, std::span<const Segment> segments) {
    std::vector<std::vector<torch::Tensor>> groups(optimizer_.hypers()->size());
    std::vector<torch::Tensor> gradients;
    const torch::Tensor direction = tensor_over(pass.gradient, bucket_.x.sizes(), bucket_.x);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Placed& placed = parameters_[i];
      gradients.push_back(placed.parameter.grad());
      placed.parameter.mutable_grad() = torch::Tensor();
      if (!segments[i].active) continue;
      torch::Tensor gradient = view_at(direction, placed).to(placed.parameter.device());
      if (pass.gradient_scale != 1) gradient = gradient * pass.gradient_scale;
      placed.parameter.mutable_grad() = gradient;
      groups[placed.group].push_back(placed.parameter);
    }
    const auto give_back = [&] {
      for (std::size_t i = 0; i < parameters_.size(); ++i)
        parameters_[i].parameter.mutable_grad() = gradients[i];
    };
    try {
      optimizer_.step(groups);
    } catch (...) {
      give_back();
      throw;
    }
    give_back();
  }

  LocalOptimizer& optimizer_;
  Bucket bucket_;
  std::vector<Placed> parameters_;
};

namespace {

const char* const kMakeAgain =
    "which would not be trained; on every rank, call export_optimizer_state() and make the trainer again (in "
    "Python: decentralize the original optimizer again)";

}  // namespace

void LocalOptimizer::check_groups(std::size_t groups) const {
  if (groups != hypers_->size())
    throw InvalidArgument(
        fmt::format("the optimizer has {} parameter groups and had {} when the trainer was "
                    "made, {}",
                    groups, hypers_->size(), kMakeAgain));
}

void LocalOptimizer::check_group(std::size_t index, std::size_t parameters) {
  if (sizes_.size() <= index) sizes_.resize(index + 1, parameters);
  if (sizes_[index] != parameters)
    throw InvalidArgument(
        fmt::format("the optimizer's group {} has {} parameters and had {} when the trainer "
                    "was made, {}",
                    index, parameters, sizes_[index], kMakeAgain));
}

UpdatePtr LocalOptimizer::make_update(const std::vector<Placed>& all, const Bucket& bucket) {
  const Buffer x = bucket.x_block();
  const std::size_t segments = bucket.parameters.size();
  if (native_ == "sgd") return make_sgd(x, segments, hypers_);
  if (!native_.empty()) return make_adam(x, segments, hypers_, native_ == "adamw");
  std::vector<Placed> parameters;
  for (const std::size_t i : bucket.parameters) parameters.push_back(all[i]);
  return std::make_unique<ForeignUpdate>(*this, bucket, std::move(parameters));
}

torch::Tensor state_part(const std::vector<NamedState>& state, const std::string& name,
                         const Placed& placed) {
  for (const NamedState& one : state) {
    if (one.name != name) continue;
    const auto count = static_cast<std::int64_t>(one.data.count);
    return view_at(tensor_over(one.data, {count}, placed.parameter), placed);
  }
  return {};
}

std::int64_t& steps_of(const std::vector<NamedState>& state, const Placed& placed) {
  return state[0].data.host<std::int64_t>()[placed.segment];
}

void forget_state(const std::vector<NamedState>& state, const Placed& placed) {
  steps_of(state, placed) = 0;
  for (std::size_t i = 1; i < state.size(); ++i) state_part(state, state[i].name, placed).zero_();
}

}  // namespace starling::train
