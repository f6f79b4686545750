#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "starling/method/family/list.h"
#include "starling/topology/exchange.h"

namespace starling::method::family {
namespace {

/// DSGD that sends only when necessary: a parameter is sent to a neighbor if it has moved by at least the
/// threshold since it was last sent there; otherwise the neighbor uses the last value that it received. One
/// flag per parameter says which. Does not keep the flock's mean.
class Lag : public Method {
 public:
  explicit Lag(double threshold) : threshold_(threshold) {}

  void adapt(Block& block) override {
    block.update();
    Round& round = rounds_[&block];
    const Rank self = block.channel->rank();
    round.exchange = flattened(block.channel->schedule()->exchange(block.neighbors().round(), self), self);
    round.flags_are_there = false;
    for (const Destination& destination : round.exchange.destinations)
      if (!is_lost(block, destination.rank)) tell(block, destination.rank);
    for (const Source& source : round.exchange.sources) {
      const Buffer flags = flags_of(block, "from", source.rank);
      std::fill_n(flags.host<std::uint8_t>(), flags.count, kNothingCame);
      if (!is_lost(block, source.rank))
        block.collective().receive({Block::in_place(flags)}, source.rank, "flags");
    }
    block.neighbors().set_round(block.neighbors().round() + 1);
    if (!block.channel->busy()) finish(block, round);
  }

  void combine(Block& block) override {
    Round& round = rounds_[&block];
    if (!std::exchange(round.flags_are_there, true)) {
      for (const Source& source : round.exchange.sources) {
        note_loss(block, source.rank);
        if (is_lost(block, source.rank)) continue;
        block.collective().receive(
            flagged(block, flags_of(block, "from", source.rank), block.state(key("heard from", source.rank))),
            source.rank, "parameters");
      }
      if (block.channel->busy()) return;
    }
    finish(block, round);
  }

  MethodRequirements requirements() const override {
    return {.schedule = ScheduleKind::single_neighbors,
            .exact_messages_because = "its messages are sent unchanged"};
  }

 private:
  struct Round {
    Exchange exchange;
    bool flags_are_there = false;
  };

  // A lost rank sends no flags; from then on its neighbors add its weight to their own.
  static constexpr std::uint8_t kNothingCame = 0xFF;
  static bool is_lost(Block& block, Rank rank) { return block.numbers(key("lost", rank))[0] != 0; }
  static void note_loss(Block& block, Rank rank) {
    const Buffer flags = flags_of(block, "from", rank);
    if (*flags.host<std::uint8_t>() == kNothingCame) block.numbers(key("lost", rank))[0] = 1;
  }

  static std::string key(const char* what, Rank rank) { return fmt::format("{} {}", what, rank); }
  static Buffer flags_of(Block& block, const char* way, Rank rank) {
    return block.host_state(fmt::format("flags {} {}", way, rank), DType::uint8,
                            std::max<std::size_t>(1, block.segments.size()));
  }

  // The parameters of `whole` whose flag is set.
  static Pieces flagged(Block& block, Buffer flags, Buffer whole) {
    Pieces pieces;
    for (std::size_t i = 0; i < block.segments.size(); ++i)
      if (flags.host<std::uint8_t>()[i] != 0)
        pieces.push_back(Block::in_place(part_of(whole, block.segments[i])));
    return pieces;
  }

  void tell(Block& block, Rank rank) const {
    const Buffer sent = block.state(key("sent to", rank));
    const Buffer moved = block.state("moved");
    const Buffer flags = flags_of(block, "to", rank);
    const auto met = block.numbers(key("met", rank));
    block.combine(moved, {{block.x, 1}, {sent, -1}});
    for (std::size_t i = 0; i < block.segments.size(); ++i) {
      const Segment& segment = block.segments[i];
      const double distance = std::sqrt(block.arithmetic().sum_of_squares(part_of(moved, segment)));
      const bool send = met[0] == 0 || !(distance < threshold_);
      flags.host<std::uint8_t>()[i] = send ? 1 : 0;
      if (send) block.copy(part_of(sent, segment), part_of(block.x, segment));
    }
    met[0] = 1;
    block.collective().send({Block::in_place(flags)}, rank, "flags");
    block.collective().send(flagged(block, flags, block.x), rank, "parameters");
  }

  // The weight of a source that has sent nothing so far goes to this rank.
  static void finish(Block& block, const Round& round) {
    std::vector<Term> terms = {{block.x, round.exchange.self_weight}};
    for (const Source& source : round.exchange.sources) {
      const auto heard = block.numbers(key("heard", source.rank));
      const Buffer flags = flags_of(block, "from", source.rank);
      for (std::size_t i = 0; i < flags.count; ++i)
        if (flags.host<std::uint8_t>()[i] == 1) heard[0] = 1;
      if (heard[0] == 0 || is_lost(block, source.rank))
        terms[0].weight += source.weight;
      else
        terms.emplace_back(block.state(key("heard from", source.rank)), source.weight);
    }
    block.combine(block.x, terms);
  }

  double threshold_;
  std::map<const Block*, Round> rounds_;  // the rounds in flight
};

}  // namespace

MethodFamily lag() {
  return {"lag",
          "DSGD that sends a parameter only when it has moved by a threshold since it was sent last",
          {{"threshold", "0.01", "threshold in the 2-norm, per parameter; 0: always send"}},
          [](const Parameters& given) { return std::make_shared<Lag>(given.number("threshold", 0, 1e30)); }};
}

}  // namespace starling::method::family
