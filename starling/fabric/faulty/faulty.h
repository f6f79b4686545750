#pragma once

#include <memory>

#include "starling/fabric/fabric.h"
#include "starling/fabric/faulty/faults.h"

namespace starling::fabric {

/// Wraps another fabric and injects faults, for tests. Keeps the order per pair; delays reorder messages of
/// different pairs.
std::shared_ptr<Fabric> make_faulty(std::shared_ptr<Fabric> inner, const Faults& faults);

/// Whether messages of neighbor averages may arrive without payload: receivers then report the loss to the
/// senders.
bool loses_messages(const Fabric& fabric);

}  // namespace starling::fabric
