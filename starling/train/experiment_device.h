#pragma once

#include <string>

#include "starling/base/types.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// Throws InvalidArgument unless `text` is auto, cpu, cuda or cuda:N. Does not use the driver, so that
/// workers can be forked afterwards.
void check_device(const std::string& text);

/// The device of a rank: `cuda` assigns the GPUs of a host to its ranks in turn, and so does `auto` if there
/// are any. Throws InvalidArgument if there is no such GPU.
torch::Device find_device(const std::string& text, Rank local_rank);

}  // namespace starling::train
