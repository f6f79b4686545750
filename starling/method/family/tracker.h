#pragma once

#include "starling/method/block.h"

namespace starling::method::family {

/// A block y that tracks the flock's mean gradient: y += g_new - g_old in every step, and mixing in between.
/// The first y is g.
class Tracker {
 public:
  /// Updates y with this step's gradient. In a step without a gradient y stays unchanged; the gradient's
  /// memory may then not even contain numbers.
  static Buffer follow(Block& block);
  /// The share of dead ranks is lost, so tracking restarts with y = g.
  static void restart(Block& block) { block.numbers("begun")[0] = 0; }
};

}  // namespace starling::method::family
