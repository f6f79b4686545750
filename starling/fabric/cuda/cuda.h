#pragma once

#include <limits>
#include <memory>
#include <string>

#include "starling/fabric/fabric.h"

namespace starling::fabric {

struct CudaOptions {
  /// Bytes of device memory that a rank's messages may have.
  std::size_t memory_limit = std::numeric_limits<std::size_t>::max();
};

/// Adds messages and pools in device memory to a fabric over shared memory: all its ranks call this with the
/// same `job`, a string unique to the job and secret. Returns the fabric as it is where no device can be used
/// (kernel::may_have_device()) or ranks share no memory. Messages in host memory are the fabric's own, as are
/// the headers of all messages, so that matching, order and failures are the same.
///
/// When a rank leaves, it waits a while until its device has finished with the messages of others, and until
/// the live readers of its own have access to them.
std::shared_ptr<Fabric> with_device_messages(std::shared_ptr<Fabric> fabric, const std::string& job,
                                             const CudaOptions& options = {});

}  // namespace starling::fabric
