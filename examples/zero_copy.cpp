// Decentralized gradient descent that writes each new x directly to outgoing memory: neighbors read it there,
// without a copy.
//
//   starling run -n 4 -- example_zero_copy
#include <cmath>
#include <iostream>
#include <starling/starling.h>

int main() {
  auto flock = starling::join();
  constexpr std::size_t kSize = 100'000;

  // Rank r's loss is |x - r|^2 / 2, so the best common x is the mean of the ranks.
  std::vector<float> x(kSize, 0.0F);
  for (int k = 0; k < 400; ++k) {
    const float rate = 0.5F / static_cast<float>(1 + k);
    auto y = flock.outgoing<float>(kSize);
    for (std::size_t i = 0; i < kSize; ++i) y[i] = x[i] - rate * (x[i] - static_cast<float>(flock.rank()));
    flock.neighbor_allreduce(std::move(y), x);  // x <- w_self y + sum of w_j y_j
  }

  const float mean = static_cast<float>(flock.size() - 1) / 2;
  flock.average(x);
  if (flock.rank() == 0) std::cout << "on average " << x[0] << ", the best is " << mean << '\n';
  return std::abs(x[0] - mean) < 0.05F ? 0 : 1;
}
