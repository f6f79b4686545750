#include "tool/torch/train_settings.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/spec.h"

namespace starling::tool {
namespace {

// `momentum` and 0.05 -> `momentum(lr=0.05)`.
std::string with_rate(const std::string& optimizer, double lr) {
  Spec spec = parse_spec(optimizer);
  for (const Spec::Argument& argument : spec.arguments)
    if (argument.key == "lr")
      throw InvalidArgument(fmt::format("the optimizer {} has a learning rate of its own, beside lr = {}; give one",
                                        optimizer, lr));
  spec.arguments.push_back({"lr", parse_spec(fmt::format("{}", lr))});
  return spec.to_string();
}

}  // namespace

Settings TrainSettings::table() {
  Settings settings;
  visit_settings(experiment,
                 [&](const char* name, auto& value, const char* help) { settings.add(name, value, help); });
  settings.add("lr", lr, "learning rate, in place of the optimizer's own");
  settings.add("alpha", alpha, "uneven data: the same as --partition dirichlet(ALPHA); small is more uneven");
  settings.add("workers", workers, "processes, where no launcher has started them already");
  settings.add("threads", threads, "of torch, per worker; 0: the cores shared out");
  settings.add("metrics", metrics, "the run's log goes there (JSON lines); beside the report unless given");
  settings.add("report", report, "the page goes there (HTML)");
  settings.add("checkpoint", checkpoint, "folder of the checkpoints");
  settings.add("checkpoint_every", checkpoint_every, "epochs from one to the next, parts of epochs too");
  settings.add("keep", keep, "how many checkpoints stay");
  return settings;
}

Experiment TrainSettings::complete() const {
  Experiment whole = experiment;
  if (lr < 0 || alpha < 0) throw InvalidArgument("lr and alpha are positive numbers");
  const Experiment usual;
  if (lr > 0) whole.optimizer = with_rate(whole.optimizer == usual.optimizer ? "momentum" : whole.optimizer, lr);
  if (alpha > 0) {
    if (whole.partition != usual.partition)
      throw InvalidArgument(
          fmt::format("alpha = {} and partition = {} say two things; give one", alpha, whole.partition));
    whole.partition = fmt::format("dirichlet({})", alpha);
  }
  if (workers < 1) throw InvalidArgument(fmt::format("workers = {}: at least one", workers));
  if (threads < 0) throw InvalidArgument(fmt::format("threads = {}: 0 or more", threads));
  if (keep < 1) throw InvalidArgument(fmt::format("keep = {}: at least one checkpoint stays", keep));
  if (!(checkpoint_every > 0))
    throw InvalidArgument(fmt::format("checkpoint_every = {}: more than no epoch", checkpoint_every));
  return whole;
}

}  // namespace starling::tool
