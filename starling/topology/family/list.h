#pragma once

#include "starling/topology/registry.h"

// Every family in list.inc is a function `Family name()` in a file of its own in this folder.
namespace starling::topology::family {
#define STARLING_FAMILY(name) Family name();
#include "starling/topology/family/list.inc"
#undef STARLING_FAMILY
}  // namespace starling::topology::family
