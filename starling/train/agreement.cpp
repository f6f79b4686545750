#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <unordered_map>

#include "starling/base/error.h"
#include "starling/train/trainer_state.h"

// What ranks that train together have in common: compared when a trainer is made and when newcomers come.
namespace starling {
namespace {

// Between texts, whose own letters are printable.
constexpr char kNextRank = '\x01';
constexpr char kChanging = '\x02';

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

void add_tensor(Description& all, const std::string& what, const torch::Tensor& tensor) {
  all.add(what, shape_of(tensor));
  all.add(fmt::format("type of {}", what), type_of(tensor));
}

const char* yes_or_no(bool yes) {
  return yes ? "true" : "false";
}

std::string class_of(const LocalOptimizer& optimizer) {
  const std::string spaced = optimizer.name();
  const std::size_t last = spaced.rfind("::");
  return last == std::string::npos ? spaced : spaced.substr(last + 2);
}

/// What ranks exchange where all is well.
struct Words {
  std::int64_t rank;
  Step step;
  std::int64_t fixed;  // digests
  std::int64_t changing;
};

}  // namespace

Description Trainer::State::describe(const SchedulePtr& schedule) const {
  Description all;
  all.add("method", options.method);
  all.add("topology", schedule ? schedule->name() : "none");
  all.add("seed", std::to_string(options.seed));
  all.add("message", options.message);
  all.add("bucket_mb", describe_number(options.bucket_mb));
  all.add("accumulation", options.accumulation == 0 ? "any number" : std::to_string(options.accumulation));
  all.add("eager", yes_or_no(options.eager));
  all.add("loss_scale", describe_number(options.loss_scale));
  all.add("on_nonfinite", options.on_nonfinite);
  all.add("buffers", options.buffers);
  all.add("on_peer_failure", options.on_peer_failure);
  all.add("broadcast_at_start", yes_or_no(options.broadcast_at_start));
  all.add("per_rank_settings", yes_or_no(options.per_rank_settings));

  std::unordered_map<torch::TensorImpl*, const Placed*> trained;
  for (const Placed& placed : parameters) trained.emplace(placed.parameter.unsafeGetTensorImpl(), &placed);
  const auto add_parameter = [&](const std::string& called, const torch::Tensor& tensor) {
    const std::string what = fmt::format("parameter {}", called);
    add_tensor(all, what, tensor);
    const auto found = trained.find(tensor.unsafeGetTensorImpl());
    all.add(fmt::format("training of {}", what),
            found != trained.end()   ? fmt::format("group {} of the optimizer", found->second->group)
            : tensor.requires_grad() ? "not in the optimizer"
                                     : "frozen");
    if (found != trained.end()) trained.erase(found);
  };
  for (const auto& [called, tensor] : module.parameters()) add_parameter(called, tensor);
  // What the optimizer has beside the module's, in its order.
  for (auto placed = parameters.rbegin(); placed != parameters.rend(); ++placed)
    if (trained.contains(placed->parameter.unsafeGetTensorImpl()))
      add_parameter(placed->name, placed->parameter);
  // Buffers that never travel may differ.
  if (options.broadcast_at_start || options.buffers != "local")
    for (const auto& [called, tensor] : module.buffers())
      add_tensor(all, fmt::format("buffer {}", called), tensor);
  // The rest being equal, these differ where parameters lie on different devices.
  std::vector<std::size_t> sizes;
  for (const Bucket& bucket : buckets) sizes.push_back(bucket.parameters.size());
  all.add("parameters per bucket", fmt::format("{}", fmt::join(sizes, ", ")));
  all.add("optimizer", class_of(*local));
  all.add("groups of the optimizer", std::to_string(local->hypers()->size()));
  return all;
}

// What may differ where every rank has its own, and changes in training.
Description Trainer::State::describe_changing() const {
  Description all;
  if (options.per_rank_settings) return all;
  all.add("clip_norm", describe_number(options.clip_norm));
  describe_settings(all, *local);
  return all;
}

// Ranks that would not understand each other are told so at once, all of them.
Company Trainer::State::agree(const SchedulePtr& schedule) {
  const Description fixed = describe(schedule);
  const Description changing = describe_changing();
  const std::vector<std::int64_t> own = {flock.rank(), goes_on ? driver->step() : Company::kNew,
                                         static_cast<std::int64_t>(fixed.digest()),
                                         static_cast<std::int64_t>(changing.digest())};
  const auto all = flock.allgather(own, Name(options.name + "/settings"));
  std::vector<Words> everybody(all.size() / own.size());
  std::memcpy(everybody.data(), all.data(), everybody.size() * sizeof(Words));
  Company company;
  company.steps.assign(static_cast<std::size_t>(flock.size()), Company::kNew);
  for (const Words& one : everybody) company.steps[static_cast<std::size_t>(one.rank)] = one.step;
  // A newcomer takes over the settings of the rank that gives it the model. Where models are not made equal
  // at the start, optimizers may not be either: their settings are compared in the first step.
  const bool somebody_goes_on = company.somebody_goes_on();
  const auto counts = [&](Step step) {
    return somebody_goes_on ? step != Company::kNew : options.broadcast_at_start;
  };
  bool differ = false;
  const Words* first = nullptr;  // of those whose settings count
  for (const Words& one : everybody) {
    differ |= one.fixed != everybody[0].fixed;
    if (!counts(one.step)) continue;
    if (first == nullptr) first = &one;
    differ |= one.changing != first->changing;
  }
  if (differ) name_difference(fixed, counts(own[1]) ? changing : Description());
  return company;
}

// All ranks get here together.
void Trainer::State::name_difference(const Description& fixed, const Description& changing) {
  const std::string text =
      fmt::format("{}{}\n{}{}{}", kNextRank, flock.rank(), fixed.text(), kChanging, changing.text());
  const auto all = flock.allgather(std::vector<std::uint8_t>(text.begin(), text.end()),
                                   Name(options.name + "/differences"));
  struct Told {
    Rank rank = 0;
    Description fixed;
    Description changing;  // empty where it does not count
  };
  std::vector<Told> everybody;
  std::string_view rest(reinterpret_cast<const char*>(all.data()), all.size());
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(kNextRank, 1));
    rest.remove_prefix(one.size());
    const std::size_t line = one.find('\n');
    const std::size_t second = one.find(kChanging);
    Told& told = everybody.emplace_back();
    std::from_chars(one.data() + 1, one.data() + line, told.rank);
    told.fixed = Description::parse(one.substr(line + 1, second - line - 1));
    told.changing = Description::parse(one.substr(second + 1));
  }
  const auto compare = [&](Description Told::*part) {
    const Told* first = nullptr;
    for (const Told& one : everybody) {
      if ((one.*part).lines().empty()) continue;
      if (first == nullptr) first = &one;
      if (const auto difference = first_difference(first->*part, one.*part))
        throw InvalidArgument(
            fmt::format("the ranks do not train alike: {}", difference->text(first->rank, one.rank)));
    }
  };
  compare(&Told::fixed);
  compare(&Told::changing);
}

}  // namespace starling
