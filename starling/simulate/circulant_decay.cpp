#include "starling/simulate/circulant_decay.h"

#include <bit>
#include <cmath>
#include <complex>
#include <numbers>
#include <unsupported/Eigen/FFT>

namespace starling {
namespace {

using Complex = std::complex<double>;

// |X_k| for all k, for any length (Bluestein: a convolution with a chirp, by transforms of a power of two). Eigen's own
// transform is quadratic when the length is prime.
std::vector<double> spectrum_moduli(const std::vector<double>& values) {
  const std::size_t n = values.size();
  const std::size_t padded = std::bit_ceil(2 * n);
  std::vector<Complex> chirp(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t turns = i * i % (2 * n);
    chirp[i] = std::polar(1.0, -std::numbers::pi * static_cast<double>(turns) / static_cast<double>(n));
  }
  std::vector<Complex> left(padded);
  std::vector<Complex> right(padded);
  for (std::size_t i = 0; i < n; ++i) {
    left[i] = values[i] * chirp[i];
    right[i] = right[(padded - i) % padded] = std::conj(chirp[i]);
  }
  Eigen::FFT<double> fft;
  std::vector<Complex> left_spectrum;
  std::vector<Complex> right_spectrum;
  fft.fwd(left_spectrum, left);
  fft.fwd(right_spectrum, right);
  for (std::size_t k = 0; k < padded; ++k) left_spectrum[k] *= right_spectrum[k];
  fft.inv(left, left_spectrum);
  std::vector<double> moduli(n);
  for (std::size_t k = 0; k < n; ++k) moduli[k] = std::abs(left[k]);  // the last chirp only turns the phase
  return moduli;
}

}  // namespace

CirculantDecay::CirculantDecay(const Circulant& schedule, std::span<const double> start, int dim) {
  const auto n = static_cast<std::size_t>(schedule.size());
  Exchange row;
  schedule.round(0, row);
  std::vector<double> weights(n, 0.0);
  weights[0] = row.self_weight;
  for (const Source& source : row.sources) weights[static_cast<std::size_t>(source.rank)] += source.weight;
  const auto eigenvalues = spectrum_moduli(weights);
  for (std::size_t k = 1; k < n; ++k) log_eigenvalue_.push_back(std::log(eigenvalues[k]));

  energy_.assign(n - 1, 0.0);
  std::vector<double> column(n);
  double total = 0;
  for (int c = 0; c < dim; ++c) {
    for (std::size_t i = 0; i < n; ++i) column[i] = start[i * static_cast<std::size_t>(dim) + static_cast<std::size_t>(c)];
    const auto spectrum = spectrum_moduli(column);
    for (std::size_t k = 1; k < n; ++k) {
      energy_[k - 1] += spectrum[k] * spectrum[k];
      total += spectrum[k] * spectrum[k];
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
