#pragma once

// Training of libtorch modules: the Trainer, which also saves and resumes, samplers and batches. Needs
// Starling::torch.

#ifndef STARLING_WITH_TORCH
#error "link the CMake target Starling::torch"
#endif

#include <torch/torch.h>

#include "starling/train/batches.h"
#include "starling/train/sampler.h"
#include "starling/train/trainer.h"
