#pragma once

#include "starling/flock/flock.h"
#include "starling/method/defaults.h"
#include "starling/method/driver.h"

namespace starling::codec {
class WireFormat;
}

namespace starling::method {

/// What a driver of a program's own vectors is made from.
struct DriverOptions {
  std::string method = kDefaultMethod;
  std::string topology = kDefaultTopology;
  std::string optimizer = kDefaultOptimizer;
  std::uint64_t seed = 0;
  /// The wire format of averages: float32, float16, bfloat16 or int8 (see codec/wire_format.h).
  std::string message = "float32";
  std::string name = "blocks";
};
/// Drives x along its gradient, both of the program's own.
Driver drive(const Flock& flock, Buffer x, Buffer gradient, const DriverOptions& options);

/// The schedule a method follows when `topology` is asked for; null where it needs none.
SchedulePtr schedule_for(const Method& method, const MethodSetting& setting, const std::string& topology,
                         std::uint64_t seed);
/// On a flock, whose rank 0 says in the log what the user should know.
SchedulePtr schedule_for(const Flock& flock, const Method& method, const std::string& topology,
                         std::uint64_t seed);

/// Throws InvalidArgument where messages of neighbors may get lost and the method cannot do without them.
void check_losses(const Method& method, bool losses);
/// Throws InvalidArgument where a method that takes inexact messages does not take these.
void check_message(const Method& method, const std::string& spec, const WireFormat& format);

/// Throws InvalidArgument where the method cannot do with this optimizer (a spec of optimizer_families()).
void check_optimizer(const Method& method, const std::string& optimizer);
/// The same for an optimizer of any kind: `kind` is "sgd", "adam" or "adamw", or empty for another one, and
/// `called` what messages call it.
void check_optimizer(const Method& method, const std::string& kind, const std::string& called,
                     const std::vector<Hyper>& groups);

/// One block of a program's own vectors, with the local optimizer that the method needs.
std::unique_ptr<Block> make_block(const std::string& name, Buffer x, Buffer gradient, const Method& method,
                                  const Optimizer& optimizer, const Hypers& hypers, ChannelPtr channel);

}  // namespace starling::method

namespace starling {
using method::drive;
using method::DriverOptions;
}  // namespace starling
