#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::bench {

struct GpuSettings {
  std::size_t elements = 100'000'000;  // float32 elements of a model
  int rounds = 5;
  int kills = 20;
  bool quick = false;

  /// The number of repetitions in a round.
  int repeats(int usual) const { return quick ? 2 : usual; }
};

/// The result of a round: the duration, and the value that is compared with the bar.
struct GpuRound {
  double seconds = 0;
  double measured = 0;
};

struct GpuCase {
  enum class Unit { share, times, seconds };

  std::string name;
  Rank ranks = 1;    // processes on the GPU
  std::string of{};  // the unit of `measured`, as a fraction or a multiple; "" for seconds
  Unit unit = Unit::share;
  double bar = 0;      // 0: nothing is promised
  bool least = false;  // whether the bar is a minimum; otherwise a maximum
  bool worst = false;  // the largest value of the rounds counts instead of the median
  /// Forks processes; the calling process must not have used a device.
  std::function<std::vector<GpuRound>(const GpuSettings&)> measure{};

  /// The bar as text, such as "at least 93 %"; "" if nothing is promised.
  std::string bar_text() const;
  std::string text_of(double measured) const;
  bool met(double measured) const { return least ? measured >= bar : measured <= bar; }
};

std::vector<GpuCase> gpu_cases();

// The cases by file.
std::vector<GpuCase> gpu_pass_cases();
std::vector<GpuCase> gpu_rank_cases();
GpuCase gpu_kill_case();

}  // namespace starling::bench
