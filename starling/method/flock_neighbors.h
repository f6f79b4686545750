#pragma once

#include <memory>

#include "starling/flock/flock.h"
#include "starling/flock/neighbor_exchanger.h"
#include "starling/method/flock_channel.h"
#include "starling/method/short_form.h"

namespace starling::method {

/// The neighbour exchanges of one block on a flock. Used by one thread at a time, as its channel is.
class FlockNeighbors final : public NeighborChannel, private SharedExchange::Lender {
 public:
  FlockNeighbors(const Flock& flock, const std::string& name, const ChannelOptions& options);

  void mix(Pieces pieces) override;
  void mix(Outgoing written, Buffer out) override;
  void differences(Piece piece) override;
  SharedExchange share(ConstBuffer x, Outgoing written) override;
  Outgoing outgoing(std::size_t bytes) override;

  Exchange next() const override { return exchanger_.next(); }
  Step round() const override { return exchanger_.step(); }
  void set_round(Step round) override { exchanger_.set_step(round); }
  std::uint32_t epoch() const override { return epoch_; }

  // For the channel.

  bool busy() const { return !jobs_.empty() || (shared_ && !shared_arrived_); }
  bool ready();
  /// Waits for the messages of all exchanges.
  void await();
  /// Waits, and writes the results.
  void finish();

 private:
  struct Job {
    PendingExchange exchange;
    Pieces pieces;
    Pieces sent;
    bool differences = false;
  };
  /// A block in outgoing memory, in fewer bits.
  struct Shortened {
    Pieces pieces;
    Outgoing memory;
  };

  std::span<const Term> lent_terms(Buffer out) override;
  void give_back() noexcept override;

  void add_job(PendingExchange exchange, Pieces pieces, Pieces sent);
  bool shortens(const Pieces& pieces) const { return short_form_ && pieces[0].in.dtype == DType::float32; }
  void check_exact_if_lost(const Pieces& pieces) const;
  Shortened shorten(const Pieces& pieces);
  void around(Buffer out, ConstBuffer x, const void* own, std::span<const Term> terms) const;
  void subtract_own(const Piece& piece, const void* sent, std::span<const Term> terms) const;
  void finish(Job& job);

  Flock flock_;
  const std::string name_;
  const SchedulePtr schedule_;
  const DType message_;
  std::unique_ptr<ShortForm> short_form_;  // null where messages are exact
  NeighborExchanger exchanger_;
  std::vector<Job> jobs_;
  PendingExchange shared_;
  bool shared_arrived_ = false;
  const void* shared_from_ = nullptr;  // the message, where x was sent in fewer bits
  Term whole_{};
  std::uint32_t epoch_ = 0;
};

}  // namespace starling::method
