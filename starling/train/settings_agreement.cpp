#include "starling/train/settings_agreement.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unordered_map>
#include <utility>

#include "starling/base/error.h"
#include "starling/codec/wire_format.h"
#include "starling/method/registry.h"
#include "starling/train/device_tensors.h"
#include "starling/train/gathered.h"
#include "starling/train/settings_watch.h"
#include "starling/train/trainer_membership.h"

namespace starling::train {
namespace {

std::string shape_of(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes().vec(), ", "));
}

std::string type_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat64:
    case torch::kFloat32:
    case torch::kFloat16:
    case torch::kBFloat16:
      return name(dtype_of_tensor(tensor));
    default:
      return torch::toString(tensor.scalar_type());
  }
}

const char* yes_or_no(bool yes) {
  return yes ? "true" : "false";
}

std::string class_of(const LocalOptimizer& optimizer) {
  const std::string qualified = optimizer.name();
  const std::size_t last = qualified.rfind("::");
  return last == std::string::npos ? qualified : qualified.substr(last + 2);
}

// All parameters: the module's, then those that only the optimizer has. `placed` is null for untrained ones.
template <typename Visit>
void visit_parameters(const Replica& replica, const Visit& visit) {
  std::unordered_map<torch::TensorImpl*, const Placed*> trained;
  for (const Placed& placed : replica.parameters)
    trained.emplace(placed.parameter.unsafeGetTensorImpl(), &placed);
  for (const auto& [name, tensor] : replica.module.parameters()) {
    const auto found = trained.find(tensor.unsafeGetTensorImpl());
    visit(name, tensor, found == trained.end() ? nullptr : found->second);
    if (found != trained.end()) trained.erase(found);
  }
  for (auto placed = replica.parameters.rbegin(); placed != replica.parameters.rend(); ++placed)
    if (trained.contains(placed->parameter.unsafeGetTensorImpl()))
      visit(placed->name, placed->parameter, &*placed);
}

// The settings that may differ with per_rank_settings, and may change during training.
Description describe_changing(const Replica& replica) {
  Description all;
  if (replica.options.per_rank_settings) return all;
  all.add("clip_norm", describe_number(replica.options.clip_norm));
  describe_settings(all, *replica.optimizer);
  return all;
}

/// What ranks exchange in the usual case, in which all settings are equal.
struct Digests {
  std::int64_t rank;
  Step step;
  std::int64_t fixed;
  std::int64_t changing;
};

}  // namespace

Description describe_method(const Replica& replica) {
  Description all;
  all.add("method", canonical_method(replica.options.method));
  all.add("topology", replica.schedule ? replica.schedule->canonical() : "none");
  return all;
}

Description describe_options(const Replica& replica) {
  const TrainerOptions& options = replica.options;
  Description all;
  all.add("seed", std::to_string(options.seed));
  all.add("message", parse_wire_format(options.message));
  all.add("master_weights", yes_or_no(options.master_weights));
  all.add("bucket_mb", describe_number(*options.bucket_mb));
  all.add("eager", yes_or_no(options.eager));  // eager decides what accumulation = 0 means
  all.add("accumulation", options.accumulation == 0 ? "any number" : std::to_string(options.accumulation));
  all.add("loss_scale", describe_number(options.loss_scale));
  all.add("on_nonfinite", options.on_nonfinite);
  all.add("buffers", options.buffers);
  all.add("on_peer_failure", options.on_peer_failure);
  all.add("broadcast_at_start", yes_or_no(options.broadcast_at_start));
  all.add("per_rank_settings", yes_or_no(options.per_rank_settings));
  return all;
}

Description describe_model(const Replica& replica, bool with_buffers) {
  Description all;
  const auto add_tensor = [&](const std::string& what, const torch::Tensor& tensor) {
    all.add(what, shape_of(tensor));
    all.add(fmt::format("type of {}", what), type_of(tensor));
  };
  visit_parameters(replica, [&](const std::string& name, const torch::Tensor& tensor, const Placed* placed) {
    add_tensor(fmt::format("parameter {}", name), tensor);
    if (placed != nullptr && !placed->place.is_contiguous())
      all.add(fmt::format("permuted strides of parameter {}", name),
              fmt::format("{}", fmt::join(placed->place.strides(), ", ")));
  });
  if (with_buffers)
    for (const auto& [name, tensor] : replica.module.buffers())
      add_tensor(fmt::format("buffer {}", name), tensor);
  return all;
}

Description describe_optimizer(const Replica& replica) {
  Description all;
  visit_parameters(replica, [&](const std::string& name, const torch::Tensor& tensor, const Placed* placed) {
    all.add(fmt::format("training of parameter {}", name),
            placed != nullptr        ? fmt::format("group {} of the optimizer", placed->group)
            : tensor.requires_grad() ? "not in the optimizer"
                                     : "frozen");
  });
  // If everything else is equal, bucket sizes differ because parameters are on different devices.
  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : replica.buckets) sizes.push_back(bucket.parameters.size());
  all.add("parameters per bucket", fmt::format("{}", fmt::join(sizes, ", ")));
  all.add("optimizer", class_of(*replica.optimizer));
  all.add("groups of the optimizer", std::to_string(replica.optimizer->hypers()->size()));
  return all;
}

std::vector<Step> agree_on_settings(Replica& replica, Step step, const std::string& call) {
  Flock& flock = replica.flock;
  const TrainerOptions& options = replica.options;
  Description fixed = describe_method(replica);
  fixed.add("models are exchanged in", starling::name(replica.buckets[0].x_block().memory));
  fixed.append(describe_options(replica));
  // Buffers that are never sent may differ.
  fixed.append(describe_model(replica, options.broadcast_at_start || options.buffers != "local"));
  fixed.append(describe_optimizer(replica));
  const Description changing = describe_changing(replica);
  const std::vector<std::int64_t> own = {flock.rank(), step, static_cast<std::int64_t>(fixed.digest()),
                                         static_cast<std::int64_t>(changing.digest())};
  const std::string prefix = replica.operations_of("agreement", call);
  const auto all = flock.allgather(own, Name(prefix + "/settings"));
  std::vector<Digests> ranks(all.size() / own.size());
  std::memcpy(ranks.data(), all.data(), ranks.size() * sizeof(Digests));
  Cohort cohort;
  cohort.steps.assign(static_cast<std::size_t>(flock.size()), Cohort::kLost);
  for (const Digests& one : ranks) cohort.steps[static_cast<std::size_t>(one.rank)] = one.step;
  // A newcomer takes over the optimizer settings of the member that sends it the model. If models are not
  // made equal at the start, optimizers may not be equal either: their settings are compared in the first
  // step.
  const bool has_members = cohort.has_members();
  const auto counts = [&](Step of_rank) {
    return has_members ? of_rank != Cohort::kNew : options.broadcast_at_start;
  };
  bool differ = false;
  const Digests* first = nullptr;  // the first rank whose settings count
  for (const Digests& one : ranks) {
    differ |= one.fixed != ranks[0].fixed;
    if (!counts(one.step)) continue;
    if (first == nullptr) first = &one;
    differ |= one.changing != first->changing;
  }
  if (differ) {
    const Description counted = counts(step) ? changing : Description();
    for (const Description* part : {&std::as_const(fixed), &counted}) {
      const auto descriptions = gather_descriptions(flock, *part, Name(prefix + "/differences"));
      if (const auto difference = difference_among(descriptions))
        throw InvalidArgument(fmt::format("the ranks do not train alike: {}", *difference));
    }
  }
  return cohort.steps;
}

}  // namespace starling::train
