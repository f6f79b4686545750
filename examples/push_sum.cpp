// Asynchronous average: no rank ever waits. Each rank gives half of its value to its neighbors from time to
// time, and x / p converges to the mean on every rank.
//
//   starling run -n 4 -- example_push_sum
#include <chrono>
#include <cmath>
#include <iostream>
#include <starling/starling.h>
#include <thread>

int main() {
  auto flock = starling::join();
  std::vector<double> x = {static_cast<double>(flock.rank())};
  auto window = flock.create_window(x, "x", {.zero = true});

  const auto neighbors = window.destinations();
  for (int k = 0; k < 300; ++k) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // stands for a computation
    starling::Window::Weights shares;
    for (const starling::Rank neighbor : neighbors)
      shares[neighbor] = 0.5 / static_cast<double>(neighbors.size());
    if (!neighbors.empty()) window.accumulate(shares, 0.5);  // adds to their slots, keeps half
    window.update_then_collect();                            // adds what has arrived
  }

  flock.barrier();
  window.update_then_collect();
  const double mean = (flock.size() - 1) / 2.0;
  const double found = x[0] / window.p();
  if (flock.rank() == 0) std::cout << "x / p is " << found << ", the mean is " << mean << '\n';
  return std::abs(found - mean) < 0.1 ? 0 : 1;
}
