#include "starling/train/gradient_hooks.h"

namespace starling::train {
namespace {

class Accumulated final : public torch::autograd::FunctionPostHook {
 public:
  Accumulated(GradientHooks::Callback callback, std::size_t parameter)
      : callback_(std::move(callback)), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    callback_(parameter_, inputs[0]);
    return outputs;
  }

 private:
  GradientHooks::Callback callback_;
  std::size_t parameter_;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<Placed>& parameters, const Callback& callback) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i].parameter);
    const auto key = accumulator->add_post_hook(std::make_unique<Accumulated>(callback, i));
    hooks_.push_back({std::move(accumulator), key});
  }
}

GradientHooks::~GradientHooks() {
  for (const Hook& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

}  // namespace starling::train
