#include "starling/flock/errors.h"

#include <fmt/format.h>

#include "starling/flock/rank_runtime.h"

namespace starling::flock {

PeerLost::PeerLost(Rank peer, const std::string& operation, Step step, Rank first, const std::string& why)
    : Error(fmt::format("rank {} is lost: {} needed it{}{}", peer, operation,
                        first == peer ? "" : fmt::format("; rank {} was lost first", first),
                        why.empty() ? "" : fmt::format(" ({})", why))),
      peer_(peer),
      operation_(operation),
      step_(step) {}

namespace {
thread_local int quiet_losses = 0;
}

QuietLosses::QuietLosses() {
  ++quiet_losses;
}
QuietLosses::~QuietLosses() {
  --quiet_losses;
}
bool QuietLosses::wanted() {
  return quiet_losses > 0;
}

void dump_operations(RankRuntime& runtime, const std::string& why) {
  runtime.recorder.flight.dump(
      why, [&](const std::string& name) { return runtime.mailbox.described_without_step(name); });
}

void dump_losses(RankRuntime& runtime, const std::exception_ptr& error) {
  if (QuietLosses::wanted()) return;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    dump_operations(runtime, lost.what());
  } catch (const TimedOut& late) {
    dump_operations(runtime, late.what());
  } catch (...) {
    // Other errors need no dump of the last operations.
  }
}

}  // namespace starling::flock
