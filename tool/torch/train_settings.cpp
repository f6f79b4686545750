#include "tool/torch/train_settings.h"

#include <cmath>
#include <fmt/format.h>
#include <string_view>
#include <type_traits>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/spec.h"
#include "starling/method/update.h"

namespace starling::tool {
namespace {

// The learning rate, which is the first parameter of every optimizer; null if it is not given.
Spec* rate_in(Spec& optimizer) {
  for (Spec::Argument& argument : optimizer.arguments)
    if (argument.key == "lr") return &argument.value;
  auto& arguments = optimizer.arguments;
  return !arguments.empty() && arguments.front().key.empty() ? &arguments.front().value : nullptr;
}

// `momentum` and 0.05 -> `momentum(lr=0.05)`.
std::string with_rate(Spec optimizer, double lr) {
  Spec value = parse_spec(fmt::format("{}", lr));
  if (Spec* rate = rate_in(optimizer))
    *rate = std::move(value);
  else
    optimizer.arguments.push_back({"lr", std::move(value)});
  return optimizer.to_string();
}

// Whether the first of two settings with the same meaning takes precedence.
bool first_counts(const Settings& table, const std::string& first, const std::string& second) {
  if (table.from(first) != table.from(second)) return table.from(first) > table.from(second);
  throw InvalidArgument(fmt::format("{} = {} and {} = {} contradict each other; give one", first,
                                    table.text(first), second, table.text(second)));
}

// The kind of value that --help shows for a setting whose value is a text.
std::string kind_of(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"data", "DATA"},
      {"model", "MODEL"},
      {"method", "METHOD"},
      {"topology", "TOPOLOGY"},
      {"optimizer", "OPTIMIZER"},
      {"partition", "PARTITION"},
      {"uneven", "again|skip"},
      {"device", "DEVICE"},
      {"on_peer_failure", "raise|reweight"},
      {"message", "FORMAT"},
      {"on_nonfinite", "raise|skip|ignore"},
  };
  for (const auto& [setting, kind] : kKinds)
    if (setting == name) return kind;
  return "TEXT";
}

void need_positive(const Settings& table, const std::string& name, const std::optional<double>& value) {
  if (value && !(*value > 0 && std::isfinite(*value)))
    throw InvalidArgument(
        fmt::format("{}: {} = {} is not a number above 0", table.where(name), name, *value));
}

}  // namespace

Settings TrainSettings::training_table() {
  Settings settings;
  visit_settings(experiment, [&](const char* name, auto& value, const char* help) {
    if constexpr (std::is_same_v<decltype(value), std::string&>)
      settings.add(name, value, help, kind_of(name));
    else
      settings.add(name, value, help);
  });
  settings.add_former_name("on_loss", "on_peer_failure");
  settings.add("lr", lr,
               "learning rate; overrides the optimizer's (0.05 with momentum and nesterov, else 0.01)");
  settings.add("alpha", alpha,
               "uneven data: the same as --partition dirichlet(ALPHA), more uneven the smaller it is");
  settings.add("workers", workers, "workers to start (under a launcher: its ranks)");
  settings.add(
      "processes", processes,
      "of the workers: each has one, one for all (workers are its threads), or auto: one if they share "
      "a GPU",
      "auto|each|one");
  settings.add("threads", threads, "torch threads per worker (0: cores / workers)");
  return settings;
}

Settings TrainSettings::table() {
  Settings settings = training_table();
  settings.add("metrics", metrics, "write the run's log to FILE (JSON lines; default: beside the report)",
               "FILE");
  settings.add("report", report, "write HTML report to FILE", "FILE");
  settings.add("checkpoint", checkpoint, "checkpoint folder", "DIR");
  settings.add("checkpoint_every", checkpoint_every, "epochs between checkpoints; may be a fraction");
  settings.add("keep", keep, "number of checkpoints to keep");
  return settings;
}

Experiment TrainSettings::complete(const Settings& table) const {
  Experiment whole = experiment;
  need_positive(table, "lr", lr);
  need_positive(table, "alpha", alpha);
  if (!(whole.drop >= 0 && whole.drop < 1))
    throw InvalidArgument(fmt::format("{}: drop = {}: must be a share of messages, from 0 to below 1",
                                      table.where("drop"), whole.drop));
  Spec optimizer = parse_spec(whole.optimizer);
  const bool has_rate = rate_in(optimizer) != nullptr;
  if (!has_rate || (lr && first_counts(table, "lr", "optimizer")))
    whole.optimizer = with_rate(optimizer, lr ? *lr : parse_optimizer(whole.optimizer).hyper.lr);
  if (alpha && first_counts(table, "alpha", "partition"))
    whole.partition = fmt::format("dirichlet({})", *alpha);
  if (workers < 1) throw InvalidArgument(fmt::format("workers = {}: must be at least 1", workers));
  if (threads < 0) throw InvalidArgument(fmt::format("threads = {}: must be 0 or more", threads));
  if (keep < 1) throw InvalidArgument(fmt::format("keep = {}: must be at least 1", keep));
  if (!(checkpoint_every > 0))
    throw InvalidArgument(fmt::format("checkpoint_every = {}: must be more than 0", checkpoint_every));
  return whole;
}

}  // namespace starling::tool
