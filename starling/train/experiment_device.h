#pragma once

#include <string>

#include "starling/base/types.h"
#include "starling/train/torch_version.h"

namespace starling::train {

/// Throws InvalidArgument unless this is auto, cpu, cuda or cuda:N. Asks no driver, so that workers can be
/// forked afterwards.
void check_device(const std::string& text);

/// Where a rank of a host trains: `cuda` gives the ranks of a host its GPUs in turn, and so does `auto` if
/// there are any. Throws InvalidArgument if there is no such GPU.
torch::Device find_device(const std::string& text, Rank local_rank);

}  // namespace starling::train
