#pragma once

#include "starling/flock/flock.h"
#include "starling/method/channel.h"

namespace starling::method {

/// How a block communicates on a flock.
struct ChannelOptions {
  /// Null for methods that follow no schedule.
  SchedulePtr schedule;
  /// The wire format of averages, see codec/wire_format.h; formats other than float32 require float32
  /// parameters.
  std::string message = "float32";
  /// If given, the schedule is a tree to relay along.
  RelayRule relay;
  /// Where the block's parameters end; the last one ends with the block. int8 messages scale each parameter
  /// separately. Empty: the block is one parameter.
  std::vector<std::size_t> ends = {};
  /// How messages name the operations of this channel: the user's call, and its part, as in "bucket 0".
  std::string call = {};
  std::string part = {};
  /// The values that its collectives sum must be of the same step on all ranks; an error otherwise.
  bool same_step = false;
  /// Whether to provide windows, for methods that require them.
  bool one_sided = false;
};

/// Makes a channel. Every rank calls it with the same name.
ChannelPtr make_flock_channel(const Flock& flock, const std::string& name, const ChannelOptions& options);

}  // namespace starling::method
