#pragma once

namespace starling {

/// What a process that trains wants: so many threads for torch, and a malloc that keeps memory for the next
/// step's tensors instead of giving it back to the kernel.
void prepare_worker(int threads);

}  // namespace starling
