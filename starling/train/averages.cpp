#include "starling/train/averages.h"

#include <cmath>
#include <fmt/format.h>
#include <unordered_set>

#include "starling/base/error.h"
#include "starling/flock/byte_operations.h"
#include "starling/record/log.h"
#include "starling/train/device_tensors.h"

namespace starling::train {
std::vector<torch::Tensor> Averages::floating_buffers() const {
  std::vector<torch::Tensor> all;
  for (const auto& [name, buffer] : replica_.module.buffers())
    if (buffer.is_floating_point()) all.push_back(buffer);
  return all;
}

void Averages::broadcast_parameters(Rank root) {
  const torch::NoGradGuard no_grad;
  replica_.notice_changes();
  Flock& flock = replica_.flock;
  const std::string prefix =
      replica_.operations_of("broadcast", replica_.options.caller + "broadcast_parameters()");
  std::vector<Buffer> blocks;
  for (const Bucket& bucket : replica_.buckets) blocks.push_back(bucket.x_block());
  flock.broadcast_group(blocks, root, Name(prefix + "/parameters"));
  // Frozen parameters and buffers are part of the model, too.
  std::unordered_set<torch::TensorImpl*> trained;
  for (const Placed& placed : replica_.parameters) trained.insert(placed.parameter.unsafeGetTensorImpl());
  std::vector<torch::Tensor> rest;
  for (const auto& [name, buffer] : replica_.module.buffers()) rest.push_back(buffer);
  for (const auto& [name, parameter] : replica_.module.parameters())
    if (!trained.contains(parameter.unsafeGetTensorImpl())) rest.push_back(parameter);
  for (torch::Tensor& tensor : rest) {
    torch::Tensor bytes = tensor.cpu().contiguous();
    const Buffer raw{DType::uint8, bytes.data_ptr(), bytes.nbytes()};
    ByteOperations(flock).broadcast({{raw, raw, 0}}, root, Name(prefix + "/rest of the module")).wait();
    if (!bytes.is_same(tensor)) tensor.copy_(bytes);
  }
  replica_.publish();
  replica_.driver->restart();
  step_.parameters_changed();
}

// State and settings; torch::load alone restores the state only.
void Averages::broadcast_optimizer_state(Rank root) {
  constexpr std::int64_t kCannotBeSaved = -1;
  Flock& flock = replica_.flock;
  LocalOptimizer& optimizer = *replica_.optimizer;
  std::string text;
  std::vector<std::int64_t> length = {0};
  if (flock.rank() == root) {
    optimizer.export_state(replica_.parameters, replica_.updates());
    try {
      text = optimizer.saved(true);
      length[0] = static_cast<std::int64_t>(text.size());
    } catch (const InvalidArgument&) {
      length[0] = kCannotBeSaved;
    }
  }
  const std::string name =
      replica_.operations_of("optimizer", replica_.options.caller + "broadcast_optimizer_state()") + "/state";
  flock.broadcast(length, root, Name(name));
  if (length[0] == kCannotBeSaved)
    throw InvalidArgument(
        "broadcast_optimizer_state: the optimizer or its options do not implement save() and serialize()");
  text.resize(static_cast<std::size_t>(length[0]));
  flock.broadcast(reinterpret_cast<std::uint8_t*>(text.data()), text.size(), root, Name(name));
  if (flock.rank() == root) return;
  optimizer.restore(text, true);
  optimizer.read_settings();
  optimizer.import_state(replica_.parameters, replica_.updates());
}

double Averages::consensus_distance() {
  const torch::NoGradGuard no_grad;
  Flock& flock = replica_.flock;
  const std::string prefix =
      replica_.operations_of("distance", replica_.options.caller + "consensus_distance()");
  if (!replica_.averaged) replica_.notice_changes();
  std::vector<double> squares = {0};
  for (std::size_t b = 0; b < replica_.buckets.size(); ++b) {
    const Bucket& bucket = replica_.buckets[b];
    const Buffer model = replica_.averaged ? bucket.x_block() : replica_.method->model(replica_.block(b));
    const torch::Tensor own = tensor_over(model, bucket.x.sizes(), bucket.x);
    // Averages the differences from one rank's model instead of the models: equal models have distance zero,
    // and the mean's rounding error is small compared with the differences.
    torch::Tensor difference = own.clone();
    const Buffer first = buffer_of_tensor(difference);
    ByteOperations(flock)
        .broadcast({{first, first, 0}}, flock.view().members.front(), Name(prefix + "/first model"))
        .wait();
    difference = own - difference;
    const torch::Tensor mean = difference.clone();
    const Buffer block = buffer_of_tensor(mean);
    ByteOperations(flock).allreduce({{block, block, 0}}, Reduction::average, Name(prefix + "/mean")).wait();
    squares[0] += (difference - mean).to(torch::kFloat64).square().sum().item<double>();
  }
  flock.allreduce(squares, Reduction::average, Name(prefix + "/squares"));
  return std::sqrt(squares[0]);
}

void Averages::average() {
  if (replica_.averaged)
    throw InvalidArgument("the parameters are the flock's average already: revert it or keep it first");
  const torch::NoGradGuard no_grad;
  replica_.notice_changes();
  const std::string prefix = replica_.operations_of("average", replica_.options.caller + "global_average()");
  own_models_.clear();
  for (const Bucket& bucket : replica_.buckets) own_models_.push_back(bucket.x.clone());
  replica_.copy_model_to_x();
  for (const Bucket& bucket : replica_.buckets) {
    const Buffer x = bucket.x_block();
    ByteOperations(replica_.flock)
        .allreduce({{x, x, 0}}, Reduction::average, Name(prefix + "/models"))
        .wait();
    bucket.publish_x();
  }
  own_buffers_.clear();
  for (const torch::Tensor& buffer : floating_buffers()) own_buffers_.push_back(buffer.clone());
  average_buffers(prefix + "/buffers");
  replica_.averaged = true;
}

void Averages::average_buffers(const std::string& name) {
  if (replica_.options.buffers == "local") return;
  warn_of_nonfinite_buffers();
  Flock& flock = replica_.flock;
  for (torch::Tensor& buffer : floating_buffers()) {
    torch::Tensor flat = buffer.cpu().contiguous();
    const Buffer block = buffer_of_tensor(flat);
    const Pieces pieces = {{block, block, 0}};
    if (replica_.options.buffers == "broadcast")
      ByteOperations(flock).broadcast(pieces, flock.view().members.front(), Name(name)).wait();
    else
      ByteOperations(flock).allreduce(pieces, Reduction::average, Name(name)).wait();
    if (!flat.is_same(buffer)) buffer.copy_(flat);
  }
}

// After averaging, every rank has non-finite values, and their source cannot be seen any more.
void Averages::warn_of_nonfinite_buffers() {
  const TrainerOptions& options = replica_.options;
  const bool is_used =
      options.buffers == "average" || replica_.flock.rank() == replica_.flock.view().members.front();
  if (!is_used || options.on_nonfinite == "ignore" || warned_of_buffers_) return;
  for (const auto& [name, buffer] : replica_.module.buffers()) {
    if (!buffer.is_floating_point() || buffer.isfinite().all().item<bool>()) continue;
    warned_of_buffers_ = true;
    log(LogLevel::normal,
        fmt::format(
            "rank {}, global_average() after {} steps: buffer {} is not finite here, and so it will be on "
            "every rank while the model is the average; give this rank's model finite statistics, or "
            "set buffers to local",
            replica_.flock.rank(), replica_.driver->step(), name));
    return;
  }
}

void Averages::revert() {
  if (!replica_.averaged) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t b = 0; b < replica_.buckets.size(); ++b) {
    const Bucket& bucket = replica_.buckets[b];
    torch::Tensor(bucket.x).copy_(own_models_[b]);
    bucket.publish_x();
  }
  const auto buffers = floating_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) torch::Tensor(buffers[i]).copy_(own_buffers_[i]);
  own_models_.clear();
  own_buffers_.clear();
  replica_.averaged = false;
}

void Averages::keep() {
  own_models_.clear();
  own_buffers_.clear();
  replica_.averaged = false;
  replica_.driver->restart();
  step_.parameters_changed();
}

}  // namespace starling::train
