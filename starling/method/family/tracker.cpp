#include "starling/method/family/tracker.h"

#include "starling/kernel/combine.h"

namespace starling::methods {

MutableBlock Tracker::follow(Block& block) {
  const MutableBlock y = block.state("y");
  const MutableBlock old = block.state("old gradient");
  const auto begun = block.numbers("begun");
  const Term now = block.skipped ? Term{old.data, 1} : Term{block.gradient.data, block.gradient_scale};
  if (begun[0] == 0) {
    combine(block.dtype(), y.data, {&now, 1}, block.count());
  } else if (!block.skipped) {
    const Term followed[] = {{y.data, 1}, now, {old.data, -1}};
    combine(block.dtype(), y.data, followed, block.count());
  }
  if (!block.skipped) combine(block.dtype(), old.data, {&now, 1}, block.count());
  begun[0] = 1;
  block.activate();
  return y;
}

}  // namespace starling::methods
