#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace starling {

/// Polls `condition` every 1 to 10 ms until it holds. Returns false if it does not hold within `longest`,
/// which only bounds how long a failing test takes.
template <typename Condition>
[[nodiscard]] bool eventually(const Condition& condition,
                              std::chrono::seconds longest = std::chrono::seconds(60)) {
  constexpr std::chrono::milliseconds kLongestPause{10};
  const auto end = std::chrono::steady_clock::now() + longest;
  for (std::chrono::milliseconds pause{1}; !condition(); pause = std::min(2 * pause, kLongestPause)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace starling
