#include "starling/method/family/tracker.h"

namespace starling::method::family {

Buffer Tracker::follow(Block& block) {
  const Buffer y = block.state("y");
  const Buffer old = block.state("old gradient");
  const auto begun = block.numbers("begun");
  const Term now = block.skipped ? Term{old, 1} : Term{block.gradient, block.gradient_scale};
  if (begun[0] == 0)
    block.combine(y, {now});
  else if (!block.skipped)
    block.combine(y, {{y, 1}, now, {old, -1}});
  if (!block.skipped) block.combine(old, {now});
  begun[0] = 1;
  block.activate();
  return y;
}

}  // namespace starling::method::family
