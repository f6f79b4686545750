#include "starling/simulate/circulant_decay.h"

#include <cmath>
#include <complex>
#include <unsupported/Eigen/FFT>

namespace starling {

CirculantDecay::CirculantDecay(const Circulant& schedule, std::span<const double> start, int dim) {
  const auto n = static_cast<std::size_t>(schedule.size());
  Eigen::FFT<double> fft;
  std::vector<std::complex<double>> spectrum;

  Exchange row;
  schedule.round(0, row);
  std::vector<double> weights(n, 0.0);
  weights[0] = row.self_weight;
  for (const Source& source : row.sources) weights[static_cast<std::size_t>(source.rank)] += source.weight;
  fft.fwd(spectrum, weights);
  for (std::size_t k = 1; k < n; ++k) log_eigenvalue_.push_back(std::log(std::abs(spectrum[k])));

  energy_.assign(n - 1, 0.0);
  std::vector<double> column(n);
  double total = 0;
  for (int c = 0; c < dim; ++c) {
    for (std::size_t i = 0; i < n; ++i) column[i] = start[i * static_cast<std::size_t>(dim) + static_cast<std::size_t>(c)];
    fft.fwd(spectrum, column);
    for (std::size_t k = 1; k < n; ++k) {
      energy_[k - 1] += std::norm(spectrum[k]);
      total += std::norm(spectrum[k]);
    }
  }
  for (double& value : energy_) value /= total;
}

double CirculantDecay::error(Step steps) const {
  if (steps == 0) return 1;  // a mode with the eigenvalue zero would be 0 * -infinity
  double sum = 0;
  for (std::size_t k = 0; k < energy_.size(); ++k)
    sum += energy_[k] * std::exp(2 * static_cast<double>(steps) * log_eigenvalue_[k]);
  return std::sqrt(sum);
}

Step CirculantDecay::steps_to(double tolerance) const {
  Step high = 1;
  while (error(high) > tolerance) high *= 2;
  Step low = high / 2;
  while (high - low > 1) {
    const Step middle = low + (high - low) / 2;
    (error(middle) > tolerance ? low : high) = middle;
  }
  return high;
}

}  // namespace starling
