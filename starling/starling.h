#pragma once

// Everything a program needs.
#include "starling/base/error.h"
#include "starling/codec/error_feedback.h"
#include "starling/codec/registry.h"
#include "starling/flock/flock.h"
#include "starling/method/drive.h"
#include "starling/method/registry.h"
#include "starling/simulate/consensus.h"
#include "starling/simulate/objective_registry.h"
#include "starling/simulate/training.h"
#include "starling/topology/analysis.h"
#include "starling/topology/matrix.h"
#include "starling/topology/mixer.h"
#include "starling/topology/registry.h"
#include "starling/topology/stored.h"
#include "starling/version.h"
