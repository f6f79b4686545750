#pragma once

#include <map>

#include "starling/flock/operation.h"
#include "starling/flock/relay.h"
#include "starling/kernel/combine.h"

namespace starling::flock {

/// What a relay keeps from step to step.
struct Relay::State {
  std::shared_ptr<FlockState> flock;
  Topic* topic = nullptr;
  ScheduleCursor cursor;  // the tree; or several, for a part of the block each
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
  /// With overlap: what the neighbours sent in the last step, which has not been taken in.
  struct Coming {
    std::size_t tree;
    Expectation expectation;
  };
  std::vector<Coming> coming;
  std::weak_ptr<Operation> current;
};

/// One step of a relay: all messages go out before any is waited for. With overlap those of the step before
/// are waited for, first.
class RelaySum final : public Operation {
 public:
  RelaySum(std::shared_ptr<Relay::State> state, StepPlan plan, const Piece& block);
  /// Only takes in what is under way.
  explicit RelaySum(std::shared_ptr<Relay::State> state);

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

  /// The mean of so many blocks, as a neighbour told it.
  struct Said {
    const std::byte* data;
    std::uint64_t blocks;
  };
  struct Letter;
  std::vector<std::vector<Letter>> letters() const;
  void post_messages();

  /// How a lane's result is made of what is there.
  struct Mixture {
    std::vector<Term> heard;
    double self_weight = 0;
    double reference_weight = 0;
  };
  Mixture mixture(const std::vector<Said>& said);
  /// What goes into the result: what has just arrived, or with overlap, what was heard before this step.
  std::vector<std::vector<Said>> said_by_lane();
  Expectation expected_from(Rank neighbor, std::size_t tree);
  void take_in();
  void begin_step();
  void combine_all();
  void go_ahead();
  void combine_lanes(const std::vector<Mixture>& mixtures);
  void combine_dealt(const std::vector<Mixture>& mixtures);

  std::shared_ptr<Relay::State> state_;
  StepPlan plan_;
  Piece block_;
  std::vector<Lane> lanes_;
  bool only_takes_in_ = false;
  std::vector<std::size_t> awaited_tree_;  // by awaited
  Deadline started_{};
};

}  // namespace starling::flock
