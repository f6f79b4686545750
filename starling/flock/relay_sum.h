#pragma once

#include <map>

#include "starling/flock/operation.h"
#include "starling/flock/relay.h"

namespace starling {

/// What a relay keeps from step to step.
struct Relay::State {
  std::shared_ptr<Core> core;
  Topic* topic = nullptr;
  Course course;  // the tree; or several, for a part of the block each
  RelayOptions options;

  std::uint32_t epoch = 0;
  /// By tree and neighbour: the last message, still where it was written.
  std::map<std::pair<std::size_t, Rank>, Arrival> heard;
  std::vector<std::byte> reference;
  bool filled = false;  // everybody has been heard once: the reference has served
  std::int64_t contributors = 0;
  std::weak_ptr<Operation> current;
};

/// One step of a relay: all messages go out before any is waited for.
class RelaySum final : public Operation {
 public:
  RelaySum(std::shared_ptr<Relay::State> state, Core::Turn turn, const Piece& block);

  void start();

 private:
  void proceed() override;
  void reconsider() override;
  Loss lose(const Awaited& awaited) override;

  /// The part of the block that goes over one tree.
  struct Lane {
    std::size_t begin;  // elements
    std::size_t count;
    std::vector<Rank> neighbors;
  };
  void post_messages(std::size_t tree);
  void finish_lane(const Lane& lane, std::span<Awaited> awaited);
  const std::byte* input(const Lane& lane) const;

  std::shared_ptr<Relay::State> state_;
  Core::Turn turn_;
  Piece block_;
  std::vector<Lane> lanes_;
  Deadline started_{};
};

}  // namespace starling
