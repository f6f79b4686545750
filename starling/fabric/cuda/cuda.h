#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <string>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

struct CudaOptions {
  /// The limit on a rank's device memory for messages, in bytes.
  std::size_t memory_limit = std::numeric_limits<std::size_t>::max();
  /// How long a rank that leaves waits until no device uses its messages any more.
  std::chrono::milliseconds linger{10'000};
};

/// Adds messages and pools in device memory to a fabric over shared memory: all its ranks call this with the
/// same `job`, a string unique to the job and secret. Returns the fabric as it is where no device can be used
/// (kernel::may_have_device()) or ranks share no memory. Messages in host memory are the fabric's own, as are
/// the headers of all messages, so that matching, order and failures are the same.
///
/// A rank that leaves waits for a limited time until its device has finished with messages of others, and
/// until the live readers of its own messages can access them. If they have not, because a peer was stopped,
/// the memory stays mapped until the process ends.
std::shared_ptr<Fabric> with_device_messages(std::shared_ptr<Fabric> fabric, const std::string& job,
                                             const CudaOptions& options = {});

}  // namespace starling::fabric
