#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/method/saved_state.h"
#include "starling/train/torch_optimizer.h"
#include "starling/train/trainer_state.h"

namespace starling {
namespace {

const std::string kParameters = "parameters/";
const std::string kBuffers = "buffers/";
const std::string kOptimizer = "torch optimizer";
const std::string kGenerator = "torch generator";

std::string type_name(const torch::Tensor& tensor) {
  return std::string(torch::toString(tensor.scalar_type()));
}

std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// Everything of a module that is saved, by name.
std::vector<std::pair<std::string, torch::Tensor>> tensors_of(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> all;
  for (const auto& item : module.named_parameters()) all.emplace_back(kParameters + item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) all.emplace_back(kBuffers + item.key(), item.value());
  return all;
}

torch::Tensor read_like(const CheckpointFile& file, const std::string& name, const torch::Tensor& like) {
  torch::Tensor read = torch::empty_like(like, torch::MemoryFormat::Contiguous).detach();
  file.read_into(name, bytes_of(read));
  return read;
}

}  // namespace

void Trainer::State::save(SavedParts& parts) {
  const torch::NoGradGuard no_grad;
  if (averaged)
    throw InvalidArgument("a checkpoint while the parameters are the flock's average: revert it or keep it first");
  for (const auto& [name, tensor] : tensors_of(module)) {
    const torch::Tensor whole = tensor.detach().contiguous();
    if (whole.data_ptr() == tensor.data_ptr()) {
      parts.add_view(name, type_name(whole), bytes_of(whole));
    } else {
      parts.add(name, std::vector<std::byte>(bytes_of(whole).begin(), bytes_of(whole).end()));
    }
  }
  starling::save(*driver, parts);
  if (local.native().empty()) parts.add_text(kOptimizer, saved_optimizer(optimizer));
  parts.add_number("loss scale", loss_scale);
  parts.add_number("good steps", good_steps);
  const torch::Tensor generator = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  parts.add(kGenerator, std::vector<std::byte>(bytes_of(generator).begin(), bytes_of(generator).end()));
}

void Trainer::State::restore(const CheckpointFile& file) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors_of(module)) tensor.detach().copy_(read_like(file, name, tensor));
  starling::restore(*driver, file);
  if (local.native().empty()) {
    const std::vector<std::byte> bytes = file.read(kOptimizer);
    restore_optimizer(optimizer, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  double steps = 0;
  file.read_into("loss scale", std::as_writable_bytes(std::span(&loss_scale, 1)));
  file.read_into("good steps", std::as_writable_bytes(std::span(&steps, 1)));
  good_steps = static_cast<int>(steps);
  at::Generator generator = at::globalContext().defaultGenerator(torch::kCPU);
  torch::Tensor generator_state = generator.get_state();
  file.read_into(kGenerator, bytes_of(generator_state));
  generator.set_state(generator_state);
  // What the method remembers was saved with these parameters: nothing has to follow them.
  for (std::size_t i = 0; i < parameters.size(); ++i) versions[i] = parameters[i].parameter._version();
}

void Trainer::State::restore_mean(const std::vector<std::filesystem::path>& paths) {
  const torch::NoGradGuard no_grad;
  if (paths.empty()) throw InvalidArgument("the mean of no models");
  std::vector<std::unique_ptr<CheckpointFile>> files;
  for (const auto& path : paths) files.push_back(std::make_unique<CheckpointFile>(path));
  for (const auto& [name, tensor] : tensors_of(module)) {
    torch::Tensor sum = read_like(*files[0], name, tensor);
    if (sum.is_floating_point()) {
      sum = sum.to(torch::kFloat64);
      for (std::size_t i = 1; i < files.size(); ++i) sum += read_like(*files[i], name, tensor).to(torch::kFloat64);
      sum /= static_cast<double>(files.size());
    }
    tensor.detach().copy_(sum);
  }
  double step = 0;
  files[0]->read_into("step", std::as_writable_bytes(std::span(&step, 1)));
  driver->restart();
  driver->set_step(static_cast<Step>(step));
  parameters_changed();
}

}  // namespace starling
