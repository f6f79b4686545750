#pragma once

// Everything a program needs.
#include "starling/base/error.h"
#include "starling/simulate/consensus.h"
#include "starling/topology/analysis.h"
#include "starling/topology/registry.h"
#include "starling/version.h"
