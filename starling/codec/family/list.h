#pragma once

#include "starling/codec/registry.h"

// Every codec of list.inc is a function `CodecFamily name()` in a file of this folder.
namespace starling::codec::family {
#define STARLING_CODEC(name) CodecFamily name();
#include "starling/codec/family/list.inc"
#undef STARLING_CODEC
}  // namespace starling::codec::family
