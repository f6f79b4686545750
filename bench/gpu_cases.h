#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::bench {

struct GpuSettings {
  std::size_t elements = 100'000'000;  // float32, of a model
  int rounds = 5;
  int kills = 20;
  bool quick = false;

  /// Of what a round repeats.
  int repeats(int usual) const { return quick ? 2 : usual; }
};

/// What came out of a round: how long the thing took, and what is compared with the bar.
struct GpuRound {
  double seconds = 0;
  double measured = 0;
};

struct GpuCase {
  enum class Unit { share, times, seconds };

  std::string name;
  Rank ranks = 1;    // processes on the GPU
  std::string of{};  // what `measured` is a share or a multiple of; "" for seconds
  Unit unit = Unit::share;
  double bar = 0;      // 0: nothing is promised
  bool least = false;  // the bar is the least, or the most
  bool worst = false;  // of the rounds the largest counts, and not the median
  /// Forks processes; the calling one must not have used a device.
  std::function<std::vector<GpuRound>(const GpuSettings&)> measure{};

  /// "at least 93 %"; "" where nothing is promised.
  std::string bar_text() const;
  std::string text_of(double measured) const;
  bool met(double measured) const { return least ? measured >= bar : measured <= bar; }
};

std::vector<GpuCase> gpu_cases();

// Its parts.
std::vector<GpuCase> gpu_pass_cases();
std::vector<GpuCase> gpu_rank_cases();
GpuCase gpu_kill_case();

}  // namespace starling::bench
