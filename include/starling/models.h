#pragma once

// The library's models by name, and tasks: a data set with the loss and the evaluation of a model. Needs
// Starling::torch.

#ifndef STARLING_WITH_TORCH
#error "link the CMake target Starling::torch"
#endif

#include <torch/torch.h>

#include "starling/train/model/model.h"
#include "starling/train/model/transformer.h"
#include "starling/train/task.h"
