#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "starling/base/error.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/update.h"
#include "starling/method/family/list.h"
#include "starling/method/family/round.h"
#include "starling/method/family/validity.h"

namespace starling::methods {
namespace {

/// DSGD that talks when necessary: a parameter is sent to a neighbour when it has moved by the threshold
/// since it was sent there last; otherwise the neighbour goes on with what it has. A flag per parameter
/// tells. The flock's mean is not kept.
class Lag : public Method {
 public:
  explicit Lag(double threshold) : threshold_(threshold) {}

  void adapt(Block& block) override {
    block.update();
    Round& round = rounds_[&block];
    const Rank self = block.channel->rank();
    round.exchange = flattened(block.channel->schedule()->exchange(block.channel->round(), self), self);
    round.flags_are_there = false;
    for (const Destination& destination : round.exchange.destinations)
      if (!is_lost(block, destination.rank)) tell(block, destination.rank);
    for (const Source& source : round.exchange.sources) {
      const MutableBlock flags = flags_of(block, "from", source.rank);
      std::memset(flags.data, kNothingCame, flags.count);
      if (!is_lost(block, source.rank))
        block.channel->receive({Block::in_place(flags)}, source.rank, "flags");
    }
    block.channel->set_round(block.channel->round() + 1);
    if (!block.channel->busy()) finish(block, round);
  }

  void combine(Block& block) override {
    Round& round = rounds_[&block];
    if (!std::exchange(round.flags_are_there, true)) {
      for (const Source& source : round.exchange.sources) {
        note_loss(block, source.rank);
        if (is_lost(block, source.rank)) continue;
        block.channel->receive(
            flagged(block, flags_of(block, "from", source.rank), block.state(key("heard from", source.rank))),
            source.rank, "parameters");
      }
      if (block.channel->busy()) return;
    }
    finish(block, round);
  }

  void check(const Schedule& schedule) const override {
    Method::check(schedule);
    const Exchange first = schedule.exchange(0, 0);
    if (first.group.size() > 1 && !first.sources.empty())
      throw InvalidArgument(
          fmt::format("lag sends to single neighbours; {} takes means within groups as well: "
                      "use ring, exponential or complete",
                      schedule.name()));
  }
  std::string exact_messages_because() const override { return "its letters travel as they are"; }

 private:
  struct Round {
    Exchange exchange;
    bool flags_are_there = false;
  };

  // Who is lost sends no flags, and leaves its weight to its neighbours from then on.
  static constexpr std::uint8_t kNothingCame = 0xFF;
  static bool is_lost(Block& block, Rank rank) { return block.numbers(key("lost", rank))[0] != 0; }
  static void note_loss(Block& block, Rank rank) {
    const MutableBlock flags = flags_of(block, "from", rank);
    if (*static_cast<const std::uint8_t*>(flags.data) == kNothingCame)
      block.numbers(key("lost", rank))[0] = 1;
  }

  static std::string key(const char* what, Rank rank) { return fmt::format("{} {}", what, rank); }
  static MutableBlock flags_of(Block& block, const char* way, Rank rank) {
    return block.make_state(fmt::format("flags {} {}", way, rank), DType::uint8,
                            std::max<std::size_t>(1, block.segments.size()));
  }

  // The parameters whose flag is up, of `whole`.
  static Pieces flagged(Block& block, MutableBlock flags, MutableBlock whole) {
    Pieces pieces;
    const std::size_t element = size_of(block.dtype());
    for (std::size_t i = 0; i < block.segments.size(); ++i) {
      if (static_cast<const std::uint8_t*>(flags.data)[i] == 0) continue;
      const Segment& segment = block.segments[i];
      std::byte* data = static_cast<std::byte*>(whole.data) + segment.begin * element;
      pieces.push_back({{block.dtype(), data, segment.count}, data, 0});
    }
    return pieces;
  }

  void tell(Block& block, Rank rank) const {
    const MutableBlock sent = block.state(key("sent to", rank));
    const MutableBlock moved = block.state("moved");
    const MutableBlock flags = flags_of(block, "to", rank);
    const auto met = block.numbers(key("met", rank));
    const std::size_t element = size_of(block.dtype());
    const Term difference[] = {{block.x.data, 1}, {sent.data, -1}};
    starling::combine(block.dtype(), moved.data, difference, block.count());
    for (std::size_t i = 0; i < block.segments.size(); ++i) {
      const Segment& segment = block.segments[i];
      const std::size_t offset = segment.begin * element;
      const double way = std::sqrt(
          sum_of_squares(block.dtype(), static_cast<std::byte*>(moved.data) + offset, segment.count));
      const bool send = met[0] == 0 || !(way < threshold_);
      static_cast<std::uint8_t*>(flags.data)[i] = send ? 1 : 0;
      if (send)
        copy_bytes(static_cast<std::byte*>(sent.data) + offset,
                   static_cast<const std::byte*>(block.x.data) + offset, segment.count * element);
    }
    met[0] = 1;
    block.channel->send({Block::in_place(flags)}, rank, "flags");
    block.channel->send(flagged(block, flags, block.x), rank, "parameters");
  }

  // Who has never been heard leaves its weight to this rank.
  static void finish(Block& block, const Round& round) {
    std::vector<Term> terms = {{block.x.data, round.exchange.self_weight}};
    for (const Source& source : round.exchange.sources) {
      const auto heard = block.numbers(key("heard", source.rank));
      const MutableBlock flags = flags_of(block, "from", source.rank);
      for (std::size_t i = 0; i < flags.count; ++i)
        if (static_cast<const std::uint8_t*>(flags.data)[i] == 1) heard[0] = 1;
      if (heard[0] == 0 || is_lost(block, source.rank))
        terms[0].weight += source.weight;
      else
        terms.push_back({block.state(key("heard from", source.rank)).data, source.weight});
    }
    starling::combine(block.dtype(), block.x.data, terms, block.count());
  }

  double threshold_;
  std::map<const Block*, Round> rounds_;  // what is under way
};

}  // namespace

MethodFamily lag() {
  return {"lag",
          "DSGD that sends a parameter only when it has moved by a threshold since it was sent last",
          {{"threshold", "0.01", "in the 2-norm, per parameter; 0 sends always"}},
          [](const Parameters& given) { return std::make_shared<Lag>(given.number("threshold", 0, 1e30)); }};
}

}  // namespace starling::methods
