#pragma once

#include "starling/simulate/objective_registry.h"

// Every objective in list.inc is a function `ObjectiveFamily name()` in a file in this folder.
namespace starling::simulate::objective {
#define STARLING_OBJECTIVE(name) ObjectiveFamily name();
#include "starling/simulate/objective/list.inc"
#undef STARLING_OBJECTIVE
}  // namespace starling::simulate::objective
