#pragma once

#include "starling/train/task.h"

namespace starling {

/// To tell the classes of images apart, by cross entropy; `train` and `test` are alike in shape and classes.
std::unique_ptr<Task> make_image_task(Dataset train, Dataset test);

}  // namespace starling
