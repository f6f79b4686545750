#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/spec.h"
#include "starling/codec/wire_format.h"
#include "starling/data/partition.h"
#include "starling/method/drive.h"
#include "starling/method/registry.h"
#include "starling/method/update.h"
#include "starling/topology/registry.h"
#include "starling/train/experiment.h"
#include "starling/train/experiment_device.h"
#include "starling/train/model/model.h"
#include "starling/train/options.h"
#include "starling/train/task.h"

namespace starling::train {

void check_names(const Experiment& experiment) {
  const MethodPtr method = make_method(experiment.method);
  check_topology_spec(experiment.topology);
  parse_optimizer(experiment.optimizer);
  check_options({.message = experiment.message,
                 .on_nonfinite = experiment.on_nonfinite,
                 .on_peer_failure = experiment.on_peer_failure});
  check_device(experiment.device);
  kind_of_data(experiment.data);
  canonical_task(experiment.data);
  canonical_model(experiment.model);
  canonical_partition(experiment.partition, experiment.seed);
}

void check_schedule(const Experiment& experiment, Rank workers) {
  method::schedule_for(*make_method(experiment.method), {workers, workers}, experiment.topology,
                       experiment.seed);
}

void check_model(const Experiment& experiment) {
  find_model(parse_spec(experiment.model), kind_of_data(experiment.data));
}

void check_numbers(const Experiment& experiment) {
  const auto need = [](bool good, const std::string& text) {
    if (!good) throw InvalidArgument(text);
  };
  need(experiment.batch >= 1, fmt::format("batch = {}: a batch has at least one sample", experiment.batch));
  need(experiment.uneven == "again" || experiment.uneven == "skip",
       fmt::format("uneven = {}: again or skip", experiment.uneven));
  need(experiment.accumulation >= 1,
       fmt::format("accumulation = {}: a step takes at least one batch", experiment.accumulation));
  need(experiment.epochs >= 1, fmt::format("epochs = {}: train for at least one", experiment.epochs));
  need(experiment.warmup >= 0 && experiment.warmup <= experiment.epochs,
       fmt::format("warmup = {}: between 0 and the number of epochs, {}", experiment.warmup,
                   experiment.epochs));
  need(experiment.drop >= 0 && experiment.drop < 1,
       fmt::format("drop = {}: a share of the messages, from 0 to below 1", experiment.drop));
  check_losses(*make_method(experiment.method), experiment.drop > 0);
  need(experiment.evaluations >= 1,
       fmt::format("evaluations = {}: at least 1 per epoch", experiment.evaluations));
  need(experiment.reports >= 0, fmt::format("reports = {}: 0 or more per epoch", experiment.reports));
  need(experiment.local_test >= 0, fmt::format("local_test = {}: 0 or more samples", experiment.local_test));
}

std::vector<RunSetting> settings_of(const Experiment& experiment) {
  std::vector<RunSetting> all;
  visit_settings(experiment, [&](const char* name, const auto& value, const char*) {
    const std::string_view key = name;
    if (key != "reports" && key != "evaluations" && key != "local_test" && key != "device" &&
        key != "cuda_graph")
      all.push_back({name, fmt::format("{}", value)});
  });
  return all;
}

std::string canonical_setting(const std::string& name, const std::string& value, std::uint64_t seed) {
  try {
    if (name == "data") return canonical_task(value);
    if (name == "model") return canonical_model(value);
    if (name == "method") return canonical_method(value);
    if (name == "topology") return canonical_topology(value, seed);
    if (name == "optimizer") return canonical_optimizer(value);
    if (name == "partition") return canonical_partition(value, seed);
    if (name == "message") return parse_wire_format(value);
  } catch (const InvalidArgument&) {  // for example of an extension that is not loaded
  }
  return value;
}

namespace {

// The common part of two specs that differ only in values.
Spec common_part(const Spec& one, const Spec& other) {
  Spec common{one.word, one.is_list, {}};
  for (std::size_t i = 0; i < one.arguments.size(); ++i) {
    const auto& [key, value] = one.arguments[i];
    if (value.word == other.arguments[i].value.word)
      common.arguments.push_back({key, common_part(value, other.arguments[i].value)});
  }
  return common;
}

}  // namespace

std::vector<RunSetting> canonical_settings_of(const Experiment& experiment) {
  std::vector<RunSetting> all;
  for (const auto& [name, value] : settings_of(experiment)) {
    const std::string one = canonical_setting(name, value, 0);
    const std::string other = canonical_setting(name, value, 1);
    const std::string text = one == other ? one : common_part(parse_spec(one), parse_spec(other)).to_string();
    if (text != value) all.push_back({name, text});
  }
  return all;
}

std::shared_ptr<const Task> load_task(const std::string& data) {
  return make_task(data);
}

std::size_t test_samples(const Task& task) {
  return task.size(Split::test);
}

}  // namespace starling::train
