#pragma once

#include "starling/flock/relay.h"
#include "starling/method/channel.h"

namespace starling {

/// What a relay remembers, as a checkpoint keeps it.
std::vector<ChannelMemory> pack(const Relay::Memory& memory);
Relay::Memory unpack(const std::vector<ChannelMemory>& packed);

}  // namespace starling
