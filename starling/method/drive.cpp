#include "starling/method/drive.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/codec/wire_format.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"
#include "starling/record/log.h"
#include "starling/topology/registry.h"

namespace starling::method {

SchedulePtr schedule_for(const Method& method, const MethodSetting& setting, const std::string& topology,
                         std::uint64_t seed) {
  if (!method.needs_schedule()) {
    check_topology_spec(topology);  // a misspelled name is an error even if the topology is not used
    return nullptr;
  }
  SchedulePtr schedule = make_schedule(parse_spec(method.topology(topology, setting)),
                                       {setting.size, seed, setting.ranks_per_machine});
  method.check(*schedule);
  return schedule;
}

SchedulePtr schedule_for(const Flock& flock, const Method& method, const std::string& topology,
                         std::uint64_t seed) {
  check_losses(method, flock.loses_messages());
  SchedulePtr schedule = schedule_for(method, {flock.size(), flock.local_size()}, topology, seed);
  if (!schedule || flock.rank() != 0) return schedule;
  if (const std::string warning = method.warning(*schedule); !warning.empty()) log(LogLevel::normal, warning);
  return schedule;
}

namespace {

// Throws InvalidArgument if the method does not support these parameters, messages or local optimizer.
void check(const Method& method, const DriverOptions& options, DType parameters) {
  if (parameters != DType::float32 && parameters != DType::float64)
    throw InvalidArgument(fmt::format("drive: parameters are float32 or float64, not {}", name(parameters)));
  check_optimizer(method, options.optimizer);
  const WireFormatPtr format = make_wire_format(options.message);
  if (format->exact()) return;
  if (method.needs_exact_messages())
    throw InvalidArgument(fmt::format("{} cannot take {} messages: {}; use float32", options.method,
                                      format->name(), method.exact_messages_because()));
  check_message(method, options.method, *format);
  if (parameters != DType::float32)
    throw InvalidArgument(fmt::format("drive: {} parameters are sent unchanged; {} messages are for float32",
                                      name(parameters), format->name()));
}

}  // namespace

void check_message(const Method& method, const std::string& spec, const WireFormat& format) {
  const std::string& reason = method.needs().no_int8_because;
  if (!format.summable() && !reason.empty())
    throw InvalidArgument(
        fmt::format("{} cannot take {} messages: {}; valid here are float32, float16 and bfloat16", spec,
                    format.name(), reason));
}

void check_losses(const Method& method, bool losses) {
  if (const std::string& reason = method.needs().no_losses_because; losses && !reason.empty())
    throw InvalidArgument(
        fmt::format("{} cannot be trained while messages get lost: {}", method.spec, reason));
}

void check_optimizer(const Method& method, const std::string& optimizer) {
  const Optimizer read = parse_optimizer(optimizer);
  const std::string word = parse_spec(optimizer).word;
  check_optimizer(method, word == "momentum" || word == "nesterov" ? "sgd" : word, word, {read.hyper});
}

void check_optimizer(const Method& method, const std::string& kind, const std::string& called,
                     const std::vector<Hyper>& groups) {
  const std::string& needed = method.needs().optimizer;
  if (needed.empty()) return;
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument(fmt::format("{} needs {}, not {}: {}", method.spec, optimizer_text(method.needs()),
                                      what, method.needs().optimizer_because));
  };
  if (needed == "sgd" ? kind != "sgd" : !kind.starts_with(needed)) refuse(called);
  if (needed != "sgd") return;
  for (const Hyper& hyper : groups)
    if (hyper.momentum != 0) refuse(fmt::format("{} with momentum {:g}", called, hyper.momentum));
}

std::unique_ptr<Block> make_block(const std::string& name, Buffer x, Buffer gradient, const Method& method,
                                  const Optimizer& optimizer, const Hypers& hypers, ChannelPtr channel) {
  UpdatePtr update = method.make_update(x, 1, hypers);
  if (!update) update = optimizer.make(x, 1, hypers);
  auto block = std::make_unique<Block>(name, x, gradient, std::vector<Segment>{{0, x.count, 0, true}},
                                       std::move(update), std::move(channel));
  block->hypers = hypers;
  return block;
}

Driver drive(const Flock& flock, Buffer x, Buffer gradient, const DriverOptions& options) {
  if (x.count != gradient.count || x.dtype != gradient.dtype)
    throw InvalidArgument(fmt::format("drive: x has {} x {}, its gradient {} x {}", x.count, name(x.dtype),
                                      gradient.count, name(gradient.dtype)));
  const MethodPtr method = make_method(options.method);
  const Optimizer optimizer = parse_optimizer(options.optimizer);
  check(*method, options, x.dtype);
  const auto hypers = std::make_shared<std::vector<Hyper>>(1, optimizer.hyper);
  ChannelOptions channel{schedule_for(flock, *method, options.topology, options.seed),
                         options.message,
                         method->relay_rule(),
                         {},
                         "Driver::finish()"};
  channel.one_sided = method->needs().one_sided;
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(make_block("x", x, gradient, *method, optimizer, hypers,
                              make_flock_channel(flock, options.name, channel)));
  return {method, std::move(blocks)};
}

}  // namespace starling::method
