#pragma once

#include "starling/fabric/board.h"

namespace starling::network {

/// What a rank tells the others of itself with each heartbeat.
struct Notes {
  Posted posted;
  Waiting waiting;
};

}  // namespace starling::network
