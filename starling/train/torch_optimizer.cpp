#include "starling/train/torch_optimizer.h"

#include <sstream>

#include "starling/method/update.h"

namespace starling {

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

namespace {

std::string key_of_group(std::size_t group) {
  return "settings of group " + std::to_string(group);
}

}  // namespace

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

}  // namespace starling
