#pragma once

#include <map>

#include "starling/flock/operation.h"
#include "starling/flock/relay.h"
#include "starling/kernel/arithmetic.h"
#include "starling/kernel/transfer.h"

namespace starling::flock {

/// A copy of elements in some kind of memory; its readers know the element type.
class KeptElements {
 public:
  KeptElements() = default;
  KeptElements(const ConstBuffer& from, MemoryKind memory) : copy_(DType::uint8, from.bytes(), memory) {
    transfer(copy_.buffer(), {DType::uint8, from.address(), from.bytes(), from.memory, from.stream});
  }

  std::size_t bytes() const { return copy_.buffer().count; }
  ConstBuffer elements(DType dtype) const {
    const Buffer& all = copy_.buffer();
    return {dtype, all.address(), all.count / size_of(dtype), all.memory, nullptr};
  }
  /// Moves the elements to another kind of memory; blocks if that is necessary.
  void move_to(MemoryKind memory) {
    if (bytes() > 0 && copy_.buffer().memory != memory) *this = KeptElements(copy_.buffer(), memory);
  }

 private:
  kernel::OwnedBuffer copy_;
};

/// The state of a relay from step to step.
struct Relay::State {
  std::shared_ptr<FlockState> flock;
  Topic* topic = nullptr;
  ScheduleCursor cursor;  // the tree, or several trees with a part of the block each
  RelayOptions options;

  std::uint32_t epoch = 0;
  /// The last mean that a neighbor sent over a tree.
  struct StoredMean {
    Arrival arrival;           // in the sender's memory
    KeptElements restored;     // or from a checkpoint
    std::uint64_t blocks = 0;  // of which it is the mean

    std::size_t bytes() const { return arrival ? arrival.size() : restored.bytes(); }
    ConstBuffer elements(DType dtype) const {
      return arrival ? arrival.buffer(dtype, arrival.size() / size_of(dtype)) : restored.elements(dtype);
    }
  };
  /// By tree and neighbor.
  std::map<std::pair<std::size_t, Rank>, StoredMean> received;
  KeptElements reference;
  bool filled = false;  // every rank has contributed once, so the reference is no longer needed
  std::int64_t contributors = 0;
  /// With overlap: a message that a neighbor sent in the last step and that is not stored yet.
  struct InFlight {
    std::size_t tree;
    Expectation expectation;
  };
  std::vector<InFlight> in_flight;
  std::weak_ptr<Operation> current;
  std::optional<MemoryKind> memory;  // of all blocks, set by the first one
};

/// One step of a relay: posts all messages before it waits for any. With overlap, it first waits for those of
/// the previous step.
class RelaySum final : public Operation {
 public:
  RelaySum(std::shared_ptr<Relay::State> state, StepPlan plan, const Piece& block);
  /// Makes no step; only receives the messages in flight.
  explicit RelaySum(std::shared_ptr<Relay::State> state);

  void start();

 private:
  void proceed() override;
  void reconsider() override;
  Loss lose(const Awaited& awaited) override;

  /// The part of the block that goes over one tree.
  struct TreePart {
    std::size_t first;  // in the block, if parts are contiguous
    std::size_t count;
    std::vector<Rank> neighbors;
  };
  TreePart part_of_tree(std::size_t tree, std::size_t trees) const;
  /// Whether the trees' elements alternate in the block.
  bool interleaved() const { return tree_parts_.size() > 1 && !state_->options.contiguous; }
  /// A hash of the trees and of how blocks are divided among them, which all ranks must agree on.
  std::uint64_t layout() const;
  void check_layout() const;

  /// The mean of `blocks` blocks, from a neighbor.
  struct ReceivedMean {
    Term elements;  // of the whole part
    std::uint64_t blocks;

    /// From element `first` on.
    Term weighted(double weight, std::size_t first, DType dtype) const {
      Term term = elements;
      term.data = static_cast<const std::byte*>(term.data) + first * size_of(dtype);
      term.weight = weight;
      return term;
    }
  };
  ReceivedMean received_mean(const Relay::State::StoredMean& stored) const;
  struct OutgoingMean;
  std::vector<std::vector<OutgoingMean>> outgoing_means() const;
  void post_messages();

  /// The terms of the result over one tree.
  struct Mixture {
    std::vector<Term> received;
    double self_weight = 0;
    double reference_weight = 0;
  };
  Mixture mixture(const std::vector<ReceivedMean>& received);
  /// The means that go into the result: those that have just arrived or, with overlap, those stored before.
  std::vector<std::vector<ReceivedMean>> received_by_tree();
  Expectation expected_from(Rank neighbor, std::size_t tree);
  void store_received();
  void begin_step();
  void combine_all();
  void post_ahead();
  /// This rank's elements that go over one tree, contiguous.
  ConstBuffer own_part(std::size_t tree) const;
  /// Whether elements are gathered before use: those of interleaved trees on a device are.
  bool gathers() const { return interleaved() && !block_.in.on_host(); }
  kernel::OwnedBuffer gathered(ConstBuffer block, std::size_t tree) const;
  void combine_parts(const std::vector<Mixture>& mixtures);
  void combine_interleaved(const std::vector<Mixture>& mixtures);

  std::shared_ptr<Relay::State> state_;
  StepPlan plan_;
  Piece block_;
  std::vector<TreePart> tree_parts_;
  std::vector<kernel::OwnedBuffer> gathered_;  // own_part() by tree, if gathers()
  bool only_receives_ = false;
  std::vector<std::size_t> awaited_tree_;  // by awaited
  Deadline started_{};
};

}  // namespace starling::flock
