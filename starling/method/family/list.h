#pragma once

#include "starling/method/registry.h"

// Every method of list.inc is a function `MethodFamily name()` in a file of this folder.
namespace starling::method::family {
#define STARLING_METHOD(name) MethodFamily name();
#include "starling/method/family/list.inc"
#undef STARLING_METHOD
}  // namespace starling::method::family
