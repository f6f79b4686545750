#pragma once

#include "starling/method/registry.h"

// Every method in list.inc is a function `MethodFamily name()` in a file in this folder.
namespace starling::method::family {
#define STARLING_METHOD(name) MethodFamily name();
#include "starling/method/family/list.inc"
#undef STARLING_METHOD
}  // namespace starling::method::family
