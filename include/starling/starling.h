#pragma once

// Everything that a program needs: topologies and their analysis, the flock, methods, codecs and the
// simulator. A program that links Starling::torch also gets the Trainer with its checkpoints
// (starling/trainer.h).

#include "starling/base/error.h"
#include "starling/codec/error_feedback.h"
#include "starling/codec/host_codec.h"
#include "starling/codec/registry.h"
#include "starling/flock/flock.h"
#include "starling/method/drive.h"
#include "starling/method/registry.h"
#include "starling/simulate/consensus.h"
#include "starling/simulate/objective_registry.h"
#include "starling/simulate/training.h"
#include "starling/topology/analysis.h"
#include "starling/topology/circulant.h"
#include "starling/topology/matching.h"
#include "starling/topology/matrix.h"
#include "starling/topology/mixer.h"
#include "starling/topology/registry.h"
#include "starling/topology/stored.h"
#include "starling/version.h"
#ifdef STARLING_WITH_TORCH
#include "starling/trainer.h"
#endif
