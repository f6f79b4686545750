#pragma once

#include "starling/flock/operation.h"

namespace starling::flock {

/// A neighbor average of one long block, piece by piece: each piece is posted as soon as it is copied and
/// combined as soon as all sources' pieces have arrived, while it is still in the cache. No rank waits
/// between pieces: a rank that is ahead continues to post. Less than half the memory traffic of
/// NeighborAverage, with the same bits.
///
/// The price: if a source is lost during an in-place operation, some parts are averages already. Every
/// element is either unchanged or an average.
class LongAverage final : public Operation {
 public:
  /// Whether piecewise averaging pays off; depends only on what both ends of every edge know.
  static bool suits(const Exchange& exchange, const Pieces& pieces);

  /// `mine` is the outgoing memory that contains the block, or empty.
  LongAverage(std::shared_ptr<FlockState> flock, Topic& topic, StepPlan plan, const Piece& block,
              Outgoing mine);

  /// Starts the operation; call it once.
  void start();

 private:
  bool settle() override;
  void proceed() override;

  struct Part {
    std::size_t begin;  // elements
    std::size_t count;
  };
  Part part(std::size_t index) const;
  void post_part(std::size_t index);
  Outgoing scaled_part(std::size_t index, double factor) const;
  void combine_part(std::size_t index);

  StepPlan plan_;
  Piece block_;
  Outgoing mine_;
  std::size_t parts_;
  std::size_t posted_ = 0;    // parts
  std::size_t combined_ = 0;  // parts
  std::vector<std::uint64_t> numbers_to_;
  std::vector<std::uint64_t> numbers_from_;
};

}  // namespace starling::flock
