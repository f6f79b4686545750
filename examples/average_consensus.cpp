// Average consensus: every rank starts with its own numbers and exchanges only with a few neighbors.
//
//   starling run -n 8 -- build/release/bin/example_average_consensus one-peer-exponential

#include <cmath>
#include <iostream>
#include <starling/starling.h>

int main(int argc, char** argv) {
  auto flock = starling::join();
  if (argc > 1) flock.set_schedule(argv[1]);  // any topology; the static exponential graph by default

  std::vector<float> x(1000, static_cast<float>(flock.rank()));
  const float mean = static_cast<float>(flock.size() - 1) / 2;
  float error = 0;
  for (int k = 0; k < 100; ++k) {
    flock.neighbor_allreduce(x);
    error = std::abs(x[0] - mean);
    if (flock.rank() == 0 && k % 10 == 0) std::cout << "step " << k << ": off by " << error << '\n';
  }
  if (flock.rank() == 0)
    std::cout << flock.schedule()->name() << " on " << flock.size() << " ranks: off by " << error << '\n';
  return error < 1e-3F ? 0 : 1;
}
