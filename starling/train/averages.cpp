#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <unordered_set>

#include "starling/base/error.h"
#include "starling/train/trainer_state.h"

// What the flock does with whole models: start, compare, evaluate.
namespace starling {
namespace {

MutableBlock block_of(const torch::Tensor& tensor) {
  return {dtype_of_tensor(tensor), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

std::vector<torch::Tensor> Trainer::State::floating_buffers() const {
  std::vector<torch::Tensor> all;
  for (const auto& [name, buffer] : module.buffers())
    if (buffer.is_floating_point()) all.push_back(buffer);
  return all;
}

void Trainer::State::broadcast_parameters(Rank root) {
  const torch::NoGradGuard no_grad;
  notice_changes();
  std::vector<MutableBlock> blocks;
  for (const Bucket& bucket : buckets) blocks.push_back(bucket.x_block());
  flock.broadcast_group(blocks, root, Name(options.name + "/parameters"));
  // Frozen parameters are part of the model, too.
  std::unordered_set<torch::TensorImpl*> trained;
  for (const Placed& placed : parameters) trained.insert(placed.parameter.unsafeGetTensorImpl());
  std::vector<torch::Tensor> rest;
  for (const auto& [name, buffer] : module.buffers()) rest.push_back(buffer);
  for (const auto& [name, parameter] : module.parameters())
    if (!trained.contains(parameter.unsafeGetTensorImpl())) rest.push_back(parameter);
  for (torch::Tensor& tensor : rest) {
    torch::Tensor bytes = tensor.cpu().contiguous();
    const MutableBlock raw{DType::uint8, bytes.data_ptr(), bytes.nbytes()};
    flock.start_broadcast({{raw, raw.data, 0}}, root, Name(options.name + "/rest of the module")).wait();
    if (!bytes.is_same(tensor)) tensor.copy_(bytes);
  }
  for (const Bucket& bucket : buckets) bucket.publish_x();
  driver->restart();
  parameters_changed();
}

// Memory and settings; torch::load alone restores the memory only.
void Trainer::State::broadcast_optimizer_state(Rank root) {
  constexpr std::int64_t kCannotBeSaved = -1;
  std::string text;
  std::vector<std::int64_t> length = {0};
  if (flock.rank() == root) {
    local->export_state(parameters, updates());
    try {
      text = local->saved(true);
      length[0] = static_cast<std::int64_t>(text.size());
    } catch (const InvalidArgument&) {
      length[0] = kCannotBeSaved;
    }
  }
  const std::string name = options.name + "/optimizer";
  flock.broadcast(length, root, Name(name));
  if (length[0] == kCannotBeSaved)
    throw InvalidArgument(
        "broadcast_optimizer_state: the optimizer or its options do not implement save() and serialize()");
  text.resize(static_cast<std::size_t>(length[0]));
  flock.broadcast(reinterpret_cast<std::uint8_t*>(text.data()), text.size(), root, Name(name));
  if (flock.rank() == root) return;
  local->restore(text, true);
  local->read_settings();
  local->import_state(parameters, updates());
}

double Trainer::State::consensus_distance() {
  const torch::NoGradGuard no_grad;
  if (!averaged) notice_changes();
  std::vector<double> squares = {0};
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const MutableBlock model = averaged ? buckets[b].x_block() : driver->method().model((*driver)[b]);
    const torch::Tensor own = torch::from_blob(model.data, {static_cast<std::int64_t>(model.count)},
                                               torch::TensorOptions(buckets[b].x.scalar_type()));
    // Differences from one rank's model are averaged, not the models: equal models are at distance zero, and
    // the mean's rounding is small beside the differences, not beside the models.
    torch::Tensor difference = own.clone();
    const MutableBlock first = block_of(difference);
    flock
        .start_broadcast({{first, first.data, 0}}, flock.view().members.front(),
                         Name(options.name + "/first model"))
        .wait();
    difference = own - difference;
    const torch::Tensor mean = difference.clone();
    const MutableBlock block = block_of(mean);
    flock.start_allreduce({{block, block.data, 0}}, Reduction::average, Name(options.name + "/mean")).wait();
    squares[0] += (difference - mean).to(torch::kFloat64).square().sum().item<double>();
  }
  flock.allreduce(squares, Reduction::average, Name(options.name + "/distance"));
  return std::sqrt(squares[0]);
}

void Trainer::State::average() {
  if (averaged)
    throw InvalidArgument("the parameters are the flock's average already: revert it or keep it first");
  const torch::NoGradGuard no_grad;
  notice_changes();
  own_models.clear();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    own_models.push_back(bucket.x.clone());
    const MutableBlock model = driver->method().model((*driver)[b]);
    const MutableBlock x = bucket.x_block();
    if (model.data != x.data) std::memcpy(x.data, model.data, bucket.x.nbytes());
    flock.start_allreduce({{x, x.data, 0}}, Reduction::average, Name(options.name + "/average")).wait();
    bucket.publish_x();
  }
  own_buffers.clear();
  for (const torch::Tensor& buffer : floating_buffers()) own_buffers.push_back(buffer.clone());
  average_buffers();
  averaged = true;
}

void Trainer::State::average_buffers() {
  if (options.buffers == "local") return;
  for (torch::Tensor& buffer : floating_buffers()) {
    torch::Tensor flat = buffer.cpu().contiguous();
    const MutableBlock block = block_of(flat);
    const Pieces pieces = {{block, block.data, 0}};
    const std::string name = options.name + "/average buffers";
    if (options.buffers == "broadcast")
      flock.start_broadcast(pieces, flock.view().members.front(), Name(name)).wait();
    else
      flock.start_allreduce(pieces, Reduction::average, Name(name)).wait();
    if (!flat.is_same(buffer)) buffer.copy_(flat);
  }
}

void Trainer::State::revert() {
  if (!averaged) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    std::memcpy(buckets[b].x.data_ptr(), own_models[b].data_ptr(), buckets[b].x.nbytes());
    buckets[b].publish_x();
  }
  const auto buffers = floating_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) torch::Tensor(buffers[i]).copy_(own_buffers[i]);
  own_models.clear();
  own_buffers.clear();
  averaged = false;
}

void Trainer::broadcast_parameters(Rank root) {
  state_->broadcast_parameters(root);
}
void Trainer::broadcast_optimizer_state(Rank root) {
  state_->broadcast_optimizer_state(root);
}
double Trainer::consensus_distance() {
  return state_->consensus_distance();
}

Trainer::Averaged Trainer::global_average() {
  state_->average();
  return Averaged(*this);
}

void Trainer::Averaged::revert() {
  if (trainer_ != nullptr) trainer_->state_->revert();
  trainer_ = nullptr;
}

void Trainer::Averaged::keep() {
  if (trainer_ == nullptr) return;
  Trainer::State& state = *trainer_->state_;
  state.own_models.clear();
  state.own_buffers.clear();
  state.averaged = false;
  state.driver->restart();
  state.parameters_changed();
  trainer_ = nullptr;
}

}  // namespace starling
