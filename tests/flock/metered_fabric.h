#pragma once

#include <atomic>

#include "starling/fabric/forwarding.h"

namespace starling::flock {

/// Counts the bytes that would travel over a network: those that this rank posts and those that it receives.
class MeteredFabric final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;

  std::atomic<std::uint64_t> posted{0};
  std::atomic<std::uint64_t> received{0};

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    posted += range.size();
    ForwardingFabric::post(range, header, to);
  }
  std::optional<Arrival> poll(Rank source) override {
    auto arrival = ForwardingFabric::poll(source);
    if (arrival) received += arrival->size();
    return arrival;
  }
};

}  // namespace starling::flock
