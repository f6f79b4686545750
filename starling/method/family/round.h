#pragma once

#include "starling/method/block.h"

namespace starling::method::family {

/// An exchange whose group mean is written as weights of single ranks, for methods that send to each by hand.
Exchange flattened(Exchange exchange, Rank self);

}  // namespace starling::method::family
