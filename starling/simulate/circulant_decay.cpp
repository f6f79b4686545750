#include "starling/simulate/circulant_decay.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <numbers>

#include <unsupported/Eigen/FFT>

namespace starling::simulate {
namespace {

using Complex = std::complex<double>;

// Eigen's own transform is fast and saves memory for lengths without large prime factors.
bool is_smooth(std::size_t n) {
  for (const std::size_t factor : {2U, 3U, 5U, 7U, 11U, 13U})
    while (n % factor == 0) n /= factor;
  return n == 1;
}

// |X_k| for all k, for any length (Bluestein: a convolution with a chirp, by transforms of a power of two).
// Eigen's own transform is quadratic when the length is prime.
std::vector<double> spectrum_moduli(const std::vector<double>& values) {
  const std::size_t n = values.size();
  if (is_smooth(n)) {
    std::vector<Complex> spectrum;
    Eigen::FFT<double>().fwd(spectrum, values);
    std::vector<double> moduli(n);
    for (std::size_t k = 0; k < n; ++k) moduli[k] = std::abs(spectrum[k]);
    return moduli;
  }
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
  for (std::size_t k = 0; k < n; ++k) moduli[k] = std::abs(left[k]);  // the last chirp only changes the phase
  return moduli;
}

}  // namespace

CirculantDecay::CirculantDecay(const Circulant& schedule, std::span<const double> start, int dim) {
  const auto n = static_cast<std::size_t>(schedule.size());
  const std::size_t half = n / 2;  // modes k and n-k are conjugate and decay alike
  std::vector<double> energy(half, 0.0);
  std::vector<double> column(n);
  double total = 0;
  for (int c = 0; c < dim; ++c) {
    for (std::size_t i = 0; i < n; ++i)
      column[i] = start[i * static_cast<std::size_t>(dim) + static_cast<std::size_t>(c)];
    const auto spectrum = spectrum_moduli(column);
    for (std::size_t k = 1; k < n; ++k) {
      energy[std::min(k, n - k) - 1] += spectrum[k] * spectrum[k];
      total += spectrum[k] * spectrum[k];
    }
  }

  Exchange row;
  schedule.round(0, row);
  for (std::size_t k = 1; k <= half; ++k) {
    // 1 - lambda = sum of w (1 - e^i), without the cancellation that would hide the slowest modes of a large
    // ring.
    double real = 0;
    double imaginary = 0;
    for (const Source& source : row.sources) {
      const std::size_t turns = static_cast<std::size_t>(source.rank) * k % n;
      const double angle = 2 * std::numbers::pi * static_cast<double>(turns) / static_cast<double>(n);
      real += source.weight * 2 * std::sin(angle / 2) * std::sin(angle / 2);
      imaginary += source.weight * std::sin(angle);
    }
    modes_.push_back({energy[k - 1] / total, 0.5 * std::log1p(real * (real - 2) + imaginary * imaginary)});
  }
  std::sort(modes_.begin(), modes_.end(),
            [](const Mode& left, const Mode& right) { return left.log_eigenvalue > right.log_eigenvalue; });
}

double CirculantDecay::error(Step steps) const {
  if (steps == 0) return 1;          // a mode with the eigenvalue zero would be 0 * -infinity
  constexpr double kNothing = -200;  // e^-200 of all energy
  double sum = 0;
  for (const Mode& mode : modes_) {  // slowest first: when a mode has died out, so have all later ones
    const double exponent = 2 * static_cast<double>(steps) * mode.log_eigenvalue;
    if (exponent < kNothing) break;
    sum += mode.energy * std::exp(exponent);
  }
  return std::sqrt(sum);
}

Step CirculantDecay::steps_to(double tolerance) const {
  constexpr Step kMostSteps = Step{1} << 60;
  Step high = 1;
  while (error(high) > tolerance && high < kMostSteps) high *= 2;
  Step low = high / 2;
  while (high - low > 1) {
    const Step middle = low + (high - low) / 2;
    (error(middle) > tolerance ? low : high) = middle;
  }
  return high;
}

}  // namespace starling::simulate
