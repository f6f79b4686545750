#pragma once

#include <atomic>
#include <cstdint>

#include "starling/base/floors.h"

namespace starling::kernel {

/// A word in host memory, shared by the processes of a host, that devices wait for and write. A message in
/// device memory is complete when its flag has reached the message's number. Numbers increase and stay below
/// kLost.
using Flag = std::atomic<std::uint32_t>;
/// The bit that a survivor sets in a flag when the process that would have written it has died. It ends all
/// waits for the flag; the other bits keep what was written before.
inline constexpr std::uint32_t kLost = 0x40000000;

/// Whether message `number` was complete when a wait for it ended with this value of the flag.
constexpr bool arrived(std::uint32_t flag, std::uint32_t number) {
  return (flag & ~kLost) >= number;
}

}  // namespace starling::kernel
