#pragma once

#include <vector>

#include "starling/topology/graph.h"

namespace starling::topology {

/// A schedule in which all ranks do the same up to rotation: rank i's exchange is rank 0's with i added. Code
/// that simulates all ranks uses this, and eigenvalues come from a discrete Fourier transform.
class Circulant : public Schedule {
 public:
  using Schedule::Schedule;

  /// Rank 0's exchange without destinations: the sources' ranks are the offsets from which every rank
  /// receives.
  void round(Step step, Exchange& out) const {
    out.clear();
    fill_round(step, out);
  }

 protected:
  virtual void fill_round(Step step, Exchange& out) const = 0;

 private:
  void fill(Step step, Rank rank, Exchange& out) const final;
};

/// A static circulant graph: rank i receives from i + offset for each offset.
class CirculantGraph final : public Circulant {
 public:
  /// Offsets are in 1 .. n-1, each once. Metropolis and Laplacian weights need a symmetric set.
  CirculantGraph(Rank n, std::vector<Rank> offsets, Weights weights);

  std::optional<double> known_rho() const override { return rho_; }
  void set_known_rho(double rho) { rho_ = rho; }

 private:
  void fill_round(Step step, Exchange& out) const override;

  std::vector<Rank> offsets_;
  double weight_;
  std::optional<double> rho_;
};

}  // namespace starling::topology

namespace starling {
using topology::Circulant;
}  // namespace starling
