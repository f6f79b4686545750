#pragma once

#include "starling/train/replica.h"

namespace starling::train {

/// Makes the driver of a new trainer. If models are exchanged in device memory, a collective: throws Error on
/// all ranks, with the rank, the device, and the bytes needed and free, if a rank's device has too little
/// memory for the messages of a step while the other ranks have theirs. Ranks may share a device.
void make_driver_with_room(Replica& replica);

}  // namespace starling::train
