#include "starling/train/bucket.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <unordered_map>

#include "starling/base/error.h"
#include "starling/train/device_tensors.h"

namespace starling::train {
namespace {

// Every parameter starts at a cache line, as in torch's own allocations; the gap after it belongs to it.
constexpr std::size_t kAlignment = 64;

std::size_t padded(const torch::Tensor& tensor) {
  const std::size_t line = kAlignment / static_cast<std::size_t>(tensor.element_size());
  // An empty parameter takes one line, too, so that no bucket is empty.
  return std::max<std::size_t>(1, (static_cast<std::size_t>(tensor.numel()) + line - 1) / line) * line;
}

void check(const Placed& placed) {
  const torch::Tensor& parameter = placed.parameter;
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("parameter {} {}", placed.name, why));
  };
  if (!parameter.device().is_cpu() && !parameter.device().is_cuda())
    refuse(fmt::format("is on {}; parameters are trained in CPU or CUDA memory", parameter.device().str()));
  if (parameter.layout() != torch::kStrided) refuse("is sparse; only dense parameters can be trained");
  if (!parameter.is_leaf()) refuse("is computed from other tensors; only leaf tensors can be trained");
  dtype_of_tensor(parameter);
}

}  // namespace

bool is_short(const torch::Tensor& parameter) {
  return parameter.scalar_type() == torch::kFloat16 || parameter.scalar_type() == torch::kBFloat16;
}

torch::Tensor view_at(const torch::Tensor& flat, const Placed& placed) {
  const torch::Tensor& like = placed.place.defined() ? placed.place : placed.parameter;
  const torch::Tensor part =
      flat.narrow(0, static_cast<std::int64_t>(placed.offset), placed.parameter.numel());
  return like.unsafeGetTensorImpl()->is_non_overlapping_and_dense()
             ? part.as_strided(like.sizes(), like.strides())
             : part.view(like.sizes());
}

Buffer Bucket::x_block() const {
  return buffer_of_tensor(x);
}
Buffer Bucket::home_gradient_block() const {
  return buffer_of_tensor(home_x.defined() ? home_gradient : gradient);
}
Buffer Bucket::gradient_block() const {
  return buffer_of_tensor(gradient);
}

Buffer Bucket::rounded_block() const {
  return has_master_weights() && home_x.device() == x.device() ? buffer_of_tensor(home_x) : Buffer();
}

void Bucket::publish_x() const {
  if (home_x.defined()) torch::Tensor(home_x).copy_(x);
}
void Bucket::fetch_x() const {
  if (!has_master_weights()) return replace_x();
  const torch::Tensor home = home_x.to(x.device());
  torch::Tensor(x).copy_(torch::where(x.to(home.scalar_type()) == home, x, home.to(x.scalar_type())));
}
void Bucket::replace_x() const {
  if (home_x.defined()) torch::Tensor(x).copy_(home_x);
}
void Bucket::fetch_gradient() const {
  if (home_x.defined()) torch::Tensor(gradient).copy_(home_gradient);
}
void Bucket::publish_gradient() const {
  if (home_x.defined()) torch::Tensor(home_gradient).copy_(gradient);
}
void Bucket::zero_gradient() const {
  torch::Tensor(gradient).zero_();
  if (home_x.defined()) torch::Tensor(home_gradient).zero_();
}

std::vector<Segment> Bucket::segments(const std::vector<Placed>& all) const {
  std::vector<Segment> result;
  for (const std::size_t index : parameters) {
    const torch::Tensor& parameter = all[index].parameter;
    Segment segment{all[index].offset, padded(parameter), all[index].group, true};
    const bool rows_are_whole =
        parameter.dim() > 1 && parameter.stride(0) * parameter.size(0) == parameter.numel();
    if (rows_are_whole && segment.count == static_cast<std::size_t>(parameter.numel()))
      segment.rows = static_cast<std::size_t>(parameter.size(0));
    segment.id = index;
    result.push_back(segment);
  }
  return result;
}

std::vector<Placed> trained_parameters(const ModuleTensors& module,
                                       const std::vector<std::vector<torch::Tensor>>& groups) {
  std::unordered_map<torch::TensorImpl*, Placed> trained;
  std::vector<torch::TensorImpl*> order;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& group = groups[g];
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!group[i].requires_grad()) continue;  // frozen
      const Placed placed{fmt::format("{} of the optimizer's group {}", i, g), group[i], {}, {}, g, 0, 0, 0};
      if (trained.emplace(group[i].unsafeGetTensorImpl(), placed).second)
        order.push_back(group[i].unsafeGetTensorImpl());
    }
  }
  // In the module's order; parameters that only the optimizer knows come last.
  std::vector<Placed> result;
  const auto take = [&](torch::TensorImpl* tensor, const std::string& name) {
    const auto found = trained.find(tensor);
    if (found == trained.end()) return;
    if (!name.empty()) found->second.name = name;
    result.push_back(found->second);
    trained.erase(found);
  };
  for (const auto& [name, tensor] : module.parameters()) take(tensor.unsafeGetTensorImpl(), name);
  for (torch::TensorImpl* tensor : order) take(tensor, "");
  if (result.empty())
    throw InvalidArgument(
        "the optimizer has no parameter that requires a gradient; there is nothing to train");
  for (const Placed& placed : result) check(placed);
  std::reverse(result.begin(), result.end());
  return result;
}

ModuleTensors::Named frozen_parameters(const ModuleTensors& module,
                                       const std::vector<std::vector<torch::Tensor>>& groups) {
  std::unordered_map<torch::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : module.parameters()) names.emplace(tensor.unsafeGetTensorImpl(), name);
  ModuleTensors::Named frozen;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].size(); ++i) {
      const torch::Tensor& one = groups[g][i];
      if (one.requires_grad()) continue;
      const auto found = names.find(one.unsafeGetTensorImpl());
      frozen.emplace_back(
          found != names.end() ? found->second : fmt::format("{} of the optimizer's group {}", i, g), one);
    }
  return frozen;
}

std::vector<Bucket> flatten(std::vector<Placed>& parameters, std::size_t bytes, bool through_host,
                            bool master_weights) {
  std::vector<Bucket> buckets;
  std::vector<std::size_t> filled;  // elements, by bucket
  std::map<std::pair<torch::ScalarType, std::string>, std::size_t>
      open;  // by type: the bucket that has room left
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Placed& placed = parameters[i];
    const std::pair type(placed.parameter.scalar_type(), placed.parameter.device().str());
    if (!open.contains(type)) {
      open[type] = buckets.size();
      buckets.emplace_back();
      filled.push_back(0);
    }
    placed.bucket = open[type];
    Bucket& bucket = buckets[placed.bucket];
    placed.segment = bucket.parameters.size();
    placed.offset = filled[placed.bucket];
    bucket.parameters.push_back(i);
    filled[placed.bucket] += padded(placed.parameter);
    if (filled[placed.bucket] * static_cast<std::size_t>(placed.parameter.element_size()) >= bytes)
      open.erase(type);
  }
  const torch::NoGradGuard no_grad;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    Bucket& bucket = buckets[b];
    const torch::Tensor& first = parameters[bucket.parameters[0]].parameter;
    const bool on_host = through_host && !first.device().is_cpu();
    const bool wide = master_weights && is_short(first);
    const auto type = wide ? torch::kFloat32 : first.scalar_type();
    const auto options = on_host ? torch::TensorOptions(type).pinned_memory(true)
                                 : torch::TensorOptions(type).device(first.device());
    const auto count = static_cast<std::int64_t>(filled[b]);
    bucket.x = torch::zeros({count}, options);
    bucket.gradient = torch::zeros({count}, options);
    const bool copied = on_host || wide;
    if (copied) {
      bucket.home_x = torch::zeros({count}, first.options().requires_grad(false));
      bucket.home_gradient = torch::zeros_like(bucket.home_x);
    }
    const torch::Tensor& home = copied ? bucket.home_x : bucket.x;
    const torch::Tensor& home_gradient = copied ? bucket.home_gradient : bucket.gradient;
    for (const std::size_t i : bucket.parameters) {
      Placed& placed = parameters[i];
      placed.place = view_at(home, placed);
      placed.place.copy_(placed.parameter);
      placed.parameter.set_data(placed.place);
      placed.gradient = view_at(home_gradient, placed).variable_data();
      // A gradient that was computed before is kept.
      if (placed.parameter.grad().defined()) placed.gradient.copy_(placed.parameter.grad());
      placed.parameter.mutable_grad() = placed.gradient;
    }
    bucket.replace_x();
  }
  return buckets;
}

}  // namespace starling::train
