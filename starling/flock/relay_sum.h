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
  struct Heard {
    Arrival arrival;                  // still where it was written
    std::vector<std::byte> restored;  // or from a checkpoint
    std::uint64_t blocks = 0;

    std::span<const std::byte> bytes() const { return arrival ? arrival.bytes() : std::span(restored); }
  };
  /// By tree and neighbour: the last message.
  std::map<std::pair<std::size_t, Rank>, Heard> heard;
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
    std::size_t first;  // in the block, where lanes are contiguous
    std::size_t count;
    std::vector<Rank> neighbors;
  };
  Lane lane_of(std::size_t tree, std::size_t trees) const;
  /// Whether the lanes take elements in turn.
  bool dealt() const { return lanes_.size() > 1 && !state_->options.contiguous; }
  const std::byte* element(const void* block, std::size_t index) const {
    return static_cast<const std::byte*>(block) + index * size_of(block_.in.dtype);
  }
  /// What messages tell of trees and lanes, so that all mean the same.
  std::uint64_t layout() const;
  void check_layout() const;

  struct Letter;
  std::vector<std::vector<Letter>> letters() const;
  void post_messages();

  /// How a lane's result is made of what is there.
  struct Mixture {
    std::vector<const std::byte*> heard;
    double self_weight = 0;
    double weight = 0;
    double reference_weight = 0;
  };
  Mixture mixture(std::span<Awaited> awaited);
  void combine_lanes(const std::vector<Mixture>& mixtures);
  void combine_dealt(const std::vector<Mixture>& mixtures);

  std::shared_ptr<Relay::State> state_;
  Core::Turn turn_;
  Piece block_;
  std::vector<Lane> lanes_;
  Deadline started_{};
};

}  // namespace starling
