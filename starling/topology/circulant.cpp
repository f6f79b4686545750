#include "starling/topology/circulant.h"

#include "starling/base/integer.h"
#include "starling/topology/spectrum.h"

namespace starling::topology {

void Circulant::fill(Step step, Rank rank, Exchange& out) const {
  fill_round(step, out);
  const Rank n = size();
  for (Source& source : out.sources) {
    out.destinations.push_back({sub_mod(rank, source.rank, n), source.lane});
    source.rank = add_mod(rank, source.rank, n);
  }
}

CirculantGraph::CirculantGraph(Rank n, std::vector<Rank> offsets, Weights weights)
    : Circulant(n), offsets_(std::move(offsets)), weight_(1.0 / static_cast<double>(offsets_.size() + 1)) {
  if (weights == Weights::laplacian && n > 1) {
    const Extremes extremes = circulant_laplacian_extremes(n, offsets_);
    weight_ = 2 / (extremes.least + extremes.most);
  }
}

void CirculantGraph::fill_round(Step /*step*/, Exchange& out) const {
  out.self_weight = 1 - weight_ * static_cast<double>(offsets_.size());
  for (const Rank offset : offsets_) out.add_source(offset, weight_);
}

}  // namespace starling::topology
