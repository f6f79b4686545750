#pragma once

#include "starling/flock/operation.h"
#include "starling/kernel/combine.h"

namespace starling::flock {

/// out <- self weight * in + the sum of weight * (the source's message), in one pass per piece. A step with a
/// group takes the mean over the group first. All pieces are in one kind of memory; on a device, the average
/// has been enqueued when the operation has ended.
class NeighborAverage final : public Operation {
 public:
  /// `mine` is the outgoing memory that contains the pieces, or empty.
  NeighborAverage(std::shared_ptr<FlockState> flock, Topic& topic, StepPlan plan, Pieces pieces,
                  Outgoing mine);
  /// With the caller's weights for sources and destinations.
  NeighborAverage(std::shared_ptr<FlockState> flock, Topic& topic, const Weighted& weights, bool symmetric,
                  Pieces pieces, Outgoing mine);

  /// Leaves the combining to the caller, with terms(). `lanes`: the pieces are blocks a and b of a two-block
  /// schedule, and a message carries one of them.
  NeighborAverage(std::shared_ptr<FlockState> flock, Topic& topic, StepPlan plan, Pieces pieces,
                  Outgoing mine, bool lanes);

  /// Starts the operation; call it once.
  void start();
  /// After success: the terms of a piece's result, lent until give_back().
  std::span<const Term> terms(std::size_t piece) const { return terms_[piece]; }
  void give_back();
  std::uint32_t epoch() const { return plan_.epoch; }
  /// Whether other ranks wait for messages that this rank can send only after it has received some.
  bool has_phases() const { return has_group() || receipts_; }

 private:
  void proceed() override;
  bool others_need_more() const override { return has_phases(); }
  /// False, because the device checks what has arrived when it combines.
  bool needs_payloads() const override { return false; }
  bool has_group() const { return plan_.exchange.group.size() > 1; }

  /// The receipts of one phase: the numbers of those sent to sources and of those expected from destinations.
  struct Receipts {
    Topic* topic = nullptr;
    std::vector<std::uint64_t> to, from;
  };
  Receipts number_receipts(const std::string& phase, const Exchange& exchange);
  void start_receipts(const Exchange& exchange, const Receipts& numbers);
  void read_receipts(const Exchange& exchange);
  bool left_out(const Exchange& exchange, std::size_t source, IfLost rule) const;

  void note_scales();
  void start_group();
  void finish_group();
  void start_mix();
  void start_lanes();
  /// Writes the combined pieces to their outputs, or to a message.
  void combine_pieces(const Exchange& exchange, const Outgoing& message);
  std::vector<Term> terms_of(const Exchange& exchange, std::size_t piece) const;
  /// This rank's own weight, increased by the weights of lost messages according to the rule.
  double own_weight(const Exchange& exchange, bool into_b, IfLost rule) const;
  void record_step(const Exchange& exchange);
  void conclude(const Exchange& exchange);
  void send(const OutgoingRange& range, const Topic& topic, Rank to, std::uint64_t number);
  void expect(const Topic& topic, Rank source, std::uint64_t number);
  MemoryKind memory() const { return pieces_[0].in.memory; }
  Outgoing packed() const;
  Outgoing scaled(double factor) const;

  StepPlan plan_;
  bool scheduled_ = true;
  Detail detail_means_ = Detail::none;
  std::uint64_t detail_ = 0;
  Pieces pieces_;
  Outgoing mine_;  // posted; may contain the pieces
  bool lending_ = false;
  bool lanes_ = false;
  std::vector<std::vector<Term>> terms_;  // by piece
  std::vector<double> scales_;            // of destinations, if not all are 1
  bool in_group_ = false;
  Exchange members_;           // the group's mean as an exchange
  std::size_t own_place_ = 0;  // in the group
  bool receipts_ = false;      // every phase ends with receipts
  bool in_receipts_ = false;
  Receipts group_receipts_, mix_receipts_;
  // by destination: the share of this rank's block that the destination did not get
  std::vector<double> lost_shares_;
  std::vector<std::uint64_t> numbers_from_;
  std::vector<std::uint64_t> numbers_to_;
};

}  // namespace starling::flock
