#pragma once

#include "starling/method/block.h"

namespace starling::method::family {

/// A block y that follows the flock's mean gradient: y += g_new - g_old in every step, and mixing in between.
/// The first y is g.
class Tracker {
 public:
  /// Takes this step's gradient up. A step without a gradient is one whose gradient has not changed: what
  /// lies there may not even be numbers.
  static Buffer follow(Block& block);
  /// What the dead held is lost: tracking restarts with y = g.
  static void restart(Block& block) { block.numbers("begun")[0] = 0; }
};

}  // namespace starling::method::family
