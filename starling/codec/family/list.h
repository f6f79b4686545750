#pragma once

#include "starling/codec/registry.h"

// Every codec in list.inc is a function `CodecFamily name()` in a file in this folder.
namespace starling::codec::family {
#define STARLING_CODEC(name) CodecFamily name();
#include "starling/codec/family/list.inc"
#undef STARLING_CODEC
}  // namespace starling::codec::family
