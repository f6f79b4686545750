// Decentralized gradient descent on least squares: rank i knows only its own A_i and b_i, and together they
// fit all data. The neighbor average of x runs while the gradient is computed.
//     starling run -n 4 -- build/release/bin/example_least_squares

#include <cmath>
#include <iostream>
#include <random>
#include <starling/starling.h>

int main() {
  constexpr int kRows = 50;
  constexpr int kColumns = 10;
  constexpr double kStep = 0.002;
  auto flock = starling::join();

  // All ranks' data have the same true x.
  std::vector<double> truth(kColumns);
  for (int j = 0; j < kColumns; ++j) truth[static_cast<std::size_t>(j)] = std::sin(j + 1.0);
  std::mt19937 random(static_cast<unsigned>(flock.rank()));
  std::normal_distribution<double> normal;
  std::vector<double> a(kRows * kColumns);
  for (double& value : a) value = normal(random);
  const auto row = [&](int i) { return a.data() + static_cast<std::ptrdiff_t>(i) * kColumns; };
  const auto dot = [](const double* u, const std::vector<double>& v) {
    double sum = 0;
    for (std::size_t j = 0; j < v.size(); ++j) sum += u[j] * v[j];
    return sum;
  };

  std::vector<double> x(kColumns, 0.0);
  std::vector<double> mixed(kColumns);
  for (int k = 0; k < 1000; ++k) {
    auto pending = flock.neighbor_allreduce_nonblocking(x, mixed);  // the neighbors' x is in transit ...
    std::vector<double> gradient(kColumns, 0.0);                    // ... while we compute A'(Ax - b)
    for (int i = 0; i < kRows; ++i) {
      const double residual = dot(row(i), x) - dot(row(i), truth);
      for (std::size_t j = 0; j < kColumns; ++j) gradient[j] += residual * row(i)[j];
    }
    pending.wait();
    for (std::size_t j = 0; j < kColumns; ++j) x[j] = mixed[j] - kStep * gradient[j];
  }

  double error = 0;
  for (std::size_t j = 0; j < kColumns; ++j) error = std::max(error, std::abs(x[j] - truth[j]));
  if (flock.rank() == 0) std::cout << flock.size() << " ranks: off by " << error << " after 1000 steps\n";
  return error < 1e-6 ? 0 : 1;
}
