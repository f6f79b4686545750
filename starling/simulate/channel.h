#pragma once

#include <deque>
#include <optional>

#include "starling/simulate/network.h"
#include "starling/simulate/one_sided.h"
#include "starling/simulate/relay.h"
#include "starling/simulate/stamp.h"

namespace starling::simulate {

/// The channel of a simulated node: it uses the same weights in the same order as a flock, so that the bits
/// are the same, and advances a clock of its own.
class SimulatedChannel final : public Channel,
                               public NeighborChannel,
                               public CollectiveChannel,
                               public OneSidedChannel,
                               public RelayChannel,
                               private SharedExchange::Lender,
                               private Outgoing::Owner {
 public:
  SimulatedChannel(SimulatedNetwork& network, Rank node);

  Rank rank() const override { return node_; }
  Rank size() const override { return network_.size(); }
  double now() const override { return clock_; }
  SchedulePtr schedule() const override { return network_.options().schedule; }
  NeighborChannel* neighbors() override { return schedule() && !relays_along() ? this : nullptr; }
  CollectiveChannel& collective() override { return *this; }
  OneSidedChannel* one_sided() override {
    return schedule() && network_.options().one_sided ? this : nullptr;
  }
  RelayChannel* relay() override { return relays_along() ? this : nullptr; }
  bool busy() const override;
  bool ready() override;
  void wait() override;
  double waited() const override { return waited_; }
  void note_age(Step age) override { ages_.add(age); }
  Staleness staleness() const override { return ages_; }

  // NeighborChannel
  void mix(Pieces pieces) override { post(Kind::mix, std::move(pieces)); }
  void mix(Outgoing written, Buffer out) override;
  void differences(Piece piece) override {
    piece.if_lost = IfLost::mutual;
    post(Kind::differences, {piece});
  }
  SharedExchange share(ConstBuffer x, Outgoing written) override;
  Outgoing outgoing(ConstBuffer block) override;
  Exchange next() const override { return row(round_); }
  Step round() const override { return round_; }
  void set_round(Step round) override { round_ = round; }
  std::uint32_t epoch() const override { return 0; }

  // CollectiveChannel
  void reduce(Pieces pieces, Reduction reduction) override;
  void gather(ConstBuffer mine, std::vector<std::byte>& all) override;
  void broadcast(Pieces pieces, Rank root) override;
  void send(Pieces pieces, Rank to, const std::string& tag) override;
  void receive(Pieces pieces, Rank from, const std::string& tag) override;
  void start_average(ConstBuffer block) override;
  bool average_arrived(Buffer out) override;
  void await_average() override { awaits_average_ = true; }

  // OneSidedChannel
  OneSided& window(Buffer block, OneSided::Start start) override;
  void set_progress(Step steps) override;
  void await_progress(Step steps) override { awaited_progress_ = steps; }

  // RelayChannel; nothing is saved, because simulations are not resumed
  void start(Piece piece) override;
  void set_reference(ConstBuffer x) override { relay_.set_reference(x); }
  std::vector<ChannelMemory> memory() override { return {}; }
  void remember(const std::vector<ChannelMemory>&) override {}

  // For the network and the other nodes.

  /// What this node sends to its neighbors in a round.
  struct Post {
    Stamp stamp;
    double time = 0;
    const Exchange* row = nullptr;  // of this round
    const std::vector<double>* places =
        nullptr;     // this node's index among each source's destinations, from 1; null: search
    Exchange drawn;  // the memory of the row, if it is not in fixed_
    Pieces pieces;   // at their places in the bytes
    std::vector<std::byte> bytes;
    bool receipts = false;  // receivers send receipts

    const Exchange& exchange() const { return *row; }
  };
  const Post& post_of(Step round) const { return posts_[static_cast<std::size_t>(round % 2)]; }
  bool has_posted(Step round) const;
  /// This node's part in a collective that is not complete yet.
  struct Contribution {
    SimulatedNetwork::Purpose purpose;
    std::int64_t number;
    Reduction reduction;
    Rank root;
    double time;
    Pieces pieces;  // at their places in the bytes
    std::vector<std::byte> bytes;
  };
  std::vector<Contribution> contributions;
  struct PointToPointMessage {
    Rank to;
    std::string tag;
    double time;
    std::vector<std::byte> bytes;
  };
  std::vector<PointToPointMessage> unsent_messages;  // not delivered yet
  void put_into_inbox(Rank from, PointToPointMessage message) {
    inbox_[{from, message.tag}].push_back(std::move(message));
  }

  /// The collectives whose result this node has taken since the last delivery.
  std::vector<std::pair<SimulatedNetwork::Purpose, std::int64_t>> taken;
  ConstBuffer average_block() const {
    return {average_type_, average_.data(), average_.size() / size_of(average_type_)};
  }

  double clock() const { return clock_; }
  void pass_time(double seconds) { clock_ += seconds; }
  void wait_until(double time);
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  void count_sent(std::size_t bytes) { bytes_sent_ += bytes; }
  Step progress() const { return progress_; }
  double progress_time() const { return progress_time_; }
  SimulatedOneSided* own_window() { return one_sided_.get(); }
  SimulatedNetwork& network() { return network_; }
  SimulatedRelay& relays() { return relay_; }

 private:
  enum class Kind { mix, differences, share, collective, relay, message };
  struct Job {
    Kind kind;
    Pieces pieces;
    Step round = 0;
    SimulatedNetwork::Purpose purpose = SimulatedNetwork::Purpose::reduction;
    std::int64_t number = 0;
    std::vector<std::byte>* all = nullptr;
    Rank from = 0;
    std::string tag = {};
  };

  // Posts own their memory, so nothing needs to be released.
  void give_back(void*) noexcept override {}
  void give_back() noexcept override { shared_.clear(); }
  std::span<const Term> lent_terms(Buffer) override { return shared_; }

  bool relays_along() const { return bool(network_.options().relay); }
  Exchange row(Step round) const;
  Post& begin_post(std::size_t bytes);
  void post(Kind kind, Pieces pieces);
  void announce(Kind kind, Post& post, Pieces pieces);
  void contribute(Contribution contribution, Job job);
  bool is_ready(const Job& job) const;
  void finish(Job& job);
  void finish_round(Job& job);
  void finish_collective(Job& job);
  void finish_message(Job& job);
  void sum_up(const Post& own, std::size_t piece, std::vector<Term>& terms) const;
  /// What a source sent in this round: its block, or the mean within its group.
  const std::byte* sent_by(const Source& source, const Post& own, std::size_t piece) const;
  double arrival(const Post& own, std::size_t source) const;
  /// Whether a piece lacks a source's message because the message, or its receipt, was lost.
  bool left_out(const Post& own, Rank source, IfLost rule) const;
  /// The share of this node's block that was lost on its way to other nodes.
  double lost_share(const Post& own) const;
  double receipt_arrival(const Post& own) const;
  double place_among(const Exchange& theirs) const;
  void subtract_own(const Piece& piece, const Post& own, const std::vector<Term>& terms) const;

  SimulatedNetwork& network_;
  Rank node_;
  Step round_ = 0;
  std::vector<Exchange> fixed_;  // the rows of a short period
  std::vector<std::vector<double>> places_;
  bool lanes_ = false;  // two blocks per rank
  Post posts_[2];
  std::vector<Job> jobs_;
  std::vector<Job> finishing_;
  std::vector<Term> terms_;
  std::vector<Term> shared_;
  std::map<SimulatedNetwork::Purpose, std::int64_t> collectives_;
  std::map<std::pair<Rank, std::string>, std::deque<PointToPointMessage>> inbox_;
  SimulatedRelay relay_;
  std::unique_ptr<SimulatedOneSided> one_sided_;
  Step progress_ = 0;
  double progress_time_ = 0;
  Step awaited_progress_ = 0;
  std::int64_t averages_ = 0;
  DType average_type_ = DType::float64;
  std::vector<std::byte> average_;
  bool awaits_average_ = false;
  Staleness ages_;
  double clock_ = 0;
  double waited_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace starling::simulate
