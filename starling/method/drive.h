#pragma once

#include "starling/flock/flock.h"
#include "starling/method/defaults.h"
#include "starling/method/driver.h"

namespace starling::codec {
class WireFormat;
}

namespace starling::method {

/// The options of a driver for the program's own vectors.
struct DriverOptions {
  std::string method = kDefaultMethod;
  std::string topology = kDefaultTopology;
  std::string optimizer = kDefaultOptimizer;
  std::uint64_t seed = 0;
  /// The wire format of averages: float32, float16, bfloat16 or int8 (see codec/wire_format.h).
  std::string message = "float32";
  std::string name = "blocks";
};
/// Makes a driver that moves the program's x along its gradient.
Driver drive(const Flock& flock, Buffer x, Buffer gradient, const DriverOptions& options);

/// The schedule that a method follows if the user asks for `topology`; null if it needs none.
SchedulePtr schedule_for(const Method& method, const MethodSetting& setting, const std::string& topology,
                         std::uint64_t seed);
/// The same on a flock; its rank 0 logs the method's warnings.
SchedulePtr schedule_for(const Flock& flock, const Method& method, const std::string& topology,
                         std::uint64_t seed);

/// Throws InvalidArgument if messages of neighbors may get lost and the method cannot handle that.
void check_losses(const Method& method, bool losses);
/// Throws InvalidArgument if a method that accepts inexact messages does not accept this format.
void check_message(const Method& method, const std::string& spec, const WireFormat& format);

/// Throws InvalidArgument if the method does not support this optimizer (a spec of optimizer_families()).
void check_optimizer(const Method& method, const std::string& optimizer);
/// The same for an optimizer of any kind: `kind` is "sgd", "adam" or "adamw", or empty for another one;
/// `called` is its name in messages.
void check_optimizer(const Method& method, const std::string& kind, const std::string& called,
                     const std::vector<Hyper>& groups);

/// Makes a block of the program's own vectors, with the local optimizer that the method needs.
std::unique_ptr<Block> make_block(const std::string& name, Buffer x, Buffer gradient, const Method& method,
                                  const Optimizer& optimizer, const Hypers& hypers, ChannelPtr channel);

}  // namespace starling::method

namespace starling {
using method::drive;
using method::DriverOptions;
}  // namespace starling
