#include "starling/method/flock_one_sided.h"

#include <fmt/format.h>
#include <thread>

namespace starling::method {
namespace {

// Windows live as long as the flock but drivers may not: the next driver with this name gets another window.
std::string free_name(const Flock& flock, const std::string& name) {
  std::string free = name;
  for (int number = 2; flock.has_window(free); ++number) free = fmt::format("{}/{}", name, number);
  return free;
}

}  // namespace

FlockOneSided::FlockOneSided(Flock flock, const std::string& name, Buffer block, Start start,
                             const SchedulePtr& schedule)
    : flock_(std::move(flock)),
      window_(flock_.create_window(block, Name(free_name(flock_, name)),
                                   {.zero = start != Start::copies,
                                    .readable = false,
                                    .shared = start == Start::shared,
                                    .schedule = schedule})) {}

void FlockOneSided::put(const Weights& destinations, double self_weight) {
  window_.put(destinations, self_weight);
}

void FlockOneSided::accumulate(const Weights& destinations, double self_weight) {
  window_.accumulate(destinations, self_weight);
}

void FlockOneSided::update(double self_weight, const Weights& sources, bool reset) {
  window_.update(self_weight, sources, reset);
}

std::optional<Rank> FlockOneSided::slowest() {
  if (awaited_ <= 0) return std::nullopt;
  for (const Rank source : window_.sources()) {
    if (window_.progress(source) >= awaited_) continue;
    if (window_.alive(source)) return source;
    if (flock_.on_peer_failure() != OnPeerFailure::reweight)
      throw PeerLost(source, flock_.described(window_.name()), awaited_, source);
  }
  awaited_ = 0;
  return std::nullopt;
}

// Progress wakes no waiting rank, so this polls.
void FlockOneSided::wait() {
  constexpr std::chrono::microseconds kShort{50};
  constexpr std::chrono::microseconds kLong{1000};
  const auto until = std::chrono::steady_clock::now() + flock_.timeout();
  auto pause = kShort;
  while (const auto source = slowest()) {
    if (std::chrono::steady_clock::now() > until)
      throw TimedOut(
          fmt::format("{}: rank {} has made {} steps, and {} are waited for longer than the timeout",
                      flock_.described(window_.name()), *source, window_.progress(*source), awaited_));
    std::this_thread::sleep_for(pause);
    pause = std::min(kLong, 2 * pause);
  }
}

OneSided& FlockOneSidedChannel::window(Buffer block, OneSided::Start start) {
  if (!window_) window_ = std::make_unique<FlockOneSided>(flock_, name_ + "/window", block, start, schedule_);
  return *window_;
}

}  // namespace starling::method
