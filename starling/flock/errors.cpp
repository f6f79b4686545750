#include "starling/flock/errors.h"

#include <fmt/format.h>

#include "starling/record/flight.h"

namespace starling {

PeerLost::PeerLost(Rank peer, const std::string& operation, Step step, Rank first)
    : Error(fmt::format("rank {} is lost: {} (step {}) needed it{}", peer, operation, step,
                        first == peer ? "" : fmt::format("; rank {} was lost first", first))),
      peer_(peer),
      operation_(operation),
      step_(step) {}

void dump_losses(Flight& flight, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    flight.dump(lost.what());
  } catch (const TimedOut& late) {
    flight.dump(late.what());
  } catch (...) {
    // Other errors explain themselves.
  }
}

}  // namespace starling
