#pragma once

#include "starling/codec/codec.h"

namespace starling::method::family {

/// A bit per element and nothing else: decodes to 1, or to -1 for what was below zero. The mean of votes
/// encoded again is the majority; a tie counts as 1, as zero does.
CodecPtr make_vote();

}  // namespace starling::method::family
