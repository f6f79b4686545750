#pragma once

#include <chrono>

#include "starling/base/floors.h"

namespace starling {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The seconds that a call takes.
template <typename Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  asm volatile("" : : : "memory");  // keeps the compiler from removing the work
  return seconds_since(start);
}

/// Sums up the time spent in calls; nested calls count once.
class Stopwatch {
 public:
  class Running {
   public:
    explicit Running(Stopwatch& watch) : watch_(watch) {
      if (watch_.depth_++ == 0) watch_.since_ = Clock::now();
    }
    ~Running() {
      if (--watch_.depth_ == 0) watch_.seconds_ += seconds_since(watch_.since_);
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    Stopwatch& watch_;
  };
  double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_;
  double seconds_ = 0;
  int depth_ = 0;
};

}  // namespace starling
