#include "starling/topology/settable.h"

#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::topology {

SettableSchedule::SettableSchedule(Rank n, Rank rank) : Schedule(n), rank_(rank) {
  set_name("settable");
}

void SettableSchedule::set(Exchange exchange) {
  const auto check = [&](Rank peer) {
    if (peer < 0 || peer >= size())
      throw InvalidArgument(
          fmt::format("rank {} is not one of the {} ranks 0..{}", peer, size(), size() - 1));
    if (peer == rank_)
      throw InvalidArgument(fmt::format("rank {} is this rank itself; its weight is the self weight", peer));
  };
  for (const Source& source : exchange.sources) check(source.rank);
  for (const Destination& to : exchange.destinations) check(to.rank);
  exchange_ = std::move(exchange);
}

// Of the other ranks, only what they receive from this rank is known.
void SettableSchedule::fill(Step /*step*/, Rank rank, Exchange& out) const {
  if (rank == rank_) {
    out = exchange_;
    return;
  }
  for (const Destination& to : exchange_.destinations)
    if (to.rank == rank) out.add_source(rank_, 1);
}

}  // namespace starling::topology
