#pragma once

#include "starling/flock/flock.h"
#include "starling/method/channel.h"

namespace starling::method {

/// How a block talks on a flock.
struct ChannelOptions {
  /// Null for methods that follow none.
  SchedulePtr schedule;
  /// The wire format of averages, see codec/wire_format.h; others than float32 are for float32 parameters.
  std::string message = "float32";
  /// Where given, the schedule is a tree to relay along.
  RelayRule relay;
  /// Where the block's parameters end, the last one at its own end: int8 messages scale each on its own.
  /// Without them it is one parameter.
  std::vector<std::size_t> ends = {};
  /// What messages call what happens here: the user's call, and which part of it, as in "bucket 0".
  std::string call = {};
  std::string part = {};
  /// What its collectives sum belongs to one step on all ranks: an error otherwise.
  bool same_step = false;
  /// With windows, for methods that require them.
  bool one_sided = false;
};

/// Made by every rank, under the same name.
ChannelPtr make_flock_channel(const Flock& flock, const std::string& name, const ChannelOptions& options);

}  // namespace starling::method
