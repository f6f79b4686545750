#pragma once

#include <span>
#include <vector>

#include "starling/topology/circulant.h"

namespace starling::simulate {

/// The consensus error of a static circulant schedule after any number of steps, without running them: every
/// Fourier mode of the start values decays by its own eigenvalue.
class CirculantDecay {
 public:
  CirculantDecay(const Circulant& schedule, std::span<const double> start, int dim);

  /// ||x_t - mean|| / ||x_0 - mean||.
  double error(Step steps) const;
  /// The first step with an error of at most `tolerance`.
  Step steps_to(double tolerance) const;

 private:
  struct Mode {
    double energy;          // of the start values; the energies sum to one
    double log_eigenvalue;  // ln |lambda|
  };
  std::vector<Mode> modes_;  // slowest first, without the constant mode
};

}  // namespace starling::simulate
