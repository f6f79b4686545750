#include "starling/simulate/network.h"

#include <algorithm>
#include <bit>

#include "starling/base/random.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"
#include "starling/simulate/channel.h"

namespace starling::simulate {

SimulatedNetwork::SimulatedNetwork(Rank nodes, NetworkOptions options)
    : options_(std::move(options)), nodes_(static_cast<std::size_t>(nodes)) {
  slowest_ = options_.time.link_between(0, nodes > 1 ? 1 : 0);
  for (Rank node = 0; node < nodes; ++node) {
    const ModelledLink& link = options_.time.link_between(node, (node + 1) % nodes);
    slowest_.latency = std::max(slowest_.latency, link.latency);
    slowest_.seconds_per_byte = std::max(slowest_.seconds_per_byte, link.seconds_per_byte);
  }
}

ChannelPtr SimulatedNetwork::connect(Rank node) {
  auto channel = std::make_unique<SimulatedChannel>(*this, node);
  nodes_[static_cast<std::size_t>(node)] = channel.get();
  return channel;
}

bool SimulatedNetwork::drawn_lost(Step round, Rank from, Rank to) const {
  const std::uint64_t pair =
      static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(size()) + static_cast<std::uint64_t>(to);
  Random random(options_.seed ^ pair * 0x9E3779B97F4A7C15u, static_cast<std::uint64_t>(round),
                stream::kSimulatedDrop);
  return random.uniform() < options_.drop;
}

// The duration of a ring all-reduce.
double SimulatedNetwork::reduction_seconds(std::int64_t members, std::size_t bytes) const {
  const double part = static_cast<double>(bytes) / static_cast<double>(members);
  return 2 * static_cast<double>(members - 1) * (slowest_.latency + part * slowest_.seconds_per_byte);
}

const SimulatedNetwork::GroupMean* SimulatedNetwork::mean_of(Step round, const Group& group) const {
  const auto found = means_.find({round, group[0]});
  return found != means_.end() && found->second.done ? &found->second : nullptr;
}

void SimulatedNetwork::gather_groups(SimulatedChannel& node) {
  if (node.round() == 0) return;
  const SimulatedChannel::Post& post = node.post_of(node.round() - 1);
  if (post.stamp.pass() != pass_ || post.exchange().group.size() < 2) return;
  GroupMean& mean = means_[{post.stamp.round(), post.exchange().group[0]}];
  mean.time = std::max(mean.time, post.time);
  if (++mean.there == post.exchange().group.size())
    finish_group(post.stamp.round(), post.exchange().group, mean);
}

// In the order of the group, as on a flock, so that every member gets the same bits.
void SimulatedNetwork::finish_group(Step round, const Group& group, GroupMean& mean) {
  const double weight = 1.0 / static_cast<double>(group.size());
  const Pieces& pieces = (*this)[group[0]].post_of(round).pieces;
  mean.bytes.resize(message_bytes(pieces));
  std::vector<Term> terms;
  for (const Piece& piece : pieces) {
    terms.clear();
    for (std::int64_t i = 0; i < group.size(); ++i)
      terms.emplace_back((*this)[group[i]].post_of(round).bytes.data() + piece.offset, weight);
    combine(piece.in.dtype, mean.bytes.data() + piece.offset, terms, piece.in.count);
  }
  mean.time += reduction_seconds(group.size(), mean.bytes.size());
  mean.done = true;
}

const SimulatedNetwork::Collective* SimulatedNetwork::collective(Purpose purpose, std::int64_t number) const {
  const auto found = collectives_.find({purpose, number});
  return found != collectives_.end() && found->second.there == size() ? &found->second : nullptr;
}

// Called only between passes, for the nodes that took the result in the last one.
void SimulatedNetwork::take(Purpose purpose, std::int64_t number) {
  const auto found = collectives_.find({purpose, number});
  if (++found->second.taken == size()) collectives_.erase(found);
}

void SimulatedNetwork::run_collectives() {
  using Contribution = SimulatedChannel::Contribution;
  for (SimulatedChannel* node : nodes_)
    for (Contribution& one : node->contributions) {
      const std::size_t bytes = one.bytes.size();
      Collective& collective = collectives_[{one.purpose, one.number}];
      collective.time = std::max(collective.time, one.time);
      const bool first = collective.there++ == 0;
      if (one.purpose == Purpose::gathering) {
        collective.result.insert(collective.result.end(), one.bytes.begin(), one.bytes.end());
      } else if (one.purpose == Purpose::reduction && one.reduction == Reduction::average) {
        collective.parts[node->rank()] = std::move(one.bytes);
      } else if (first || one.purpose == Purpose::broadcast) {
        if (one.purpose != Purpose::broadcast || one.root == node->rank()) collective.result = one.bytes;
      } else {
        for (const Piece& piece : one.pieces)
          reduce(one.reduction, piece.in.dtype, collective.result.data() + piece.offset,
                 one.bytes.data() + piece.offset, piece.in.count);
      }
      if (collective.there < size()) continue;
      const auto others = static_cast<double>(size() - 1);
      if (one.purpose == Purpose::gathering) {
        collective.time +=
            others == 0 ? 0
                        : slowest_.latency + others * static_cast<double>(bytes) * slowest_.seconds_per_byte;
      } else if (one.purpose == Purpose::broadcast) {
        collective.time += static_cast<double>(std::bit_width(static_cast<std::uint32_t>(size() - 1))) *
                           (slowest_.latency + static_cast<double>(bytes) * slowest_.seconds_per_byte);
      } else {
        collective.time += reduction_seconds(size(), bytes);
      }
      if (collective.parts.empty()) continue;
      collective.result.resize(bytes);
      std::vector<Term> terms;
      for (const Piece& piece : one.pieces) {
        terms.clear();
        for (const auto& [rank, part] : collective.parts)
          terms.emplace_back(part.data() + piece.offset, 1.0 / size());
        combine(piece.in.dtype, collective.result.data() + piece.offset, terms, piece.in.count);
      }
      collective.parts.clear();
    }
  for (SimulatedChannel* node : nodes_) node->contributions.clear();
}

void SimulatedNetwork::contribute(std::int64_t number, ConstBuffer block, double time) {
  Collective& collective = collectives_[{Purpose::average, number}];
  collective.time = std::max(collective.time, time);
  // Summed by rank at the end, so that the order of contributions makes no difference.
  if (collective.there++ == 0) collective.result.resize(block.bytes());
  if (collective.there < size()) return;
  std::vector<Term> terms;
  for (Rank rank = 0; rank < size(); ++rank) terms.emplace_back((*this)[rank].average_block(), 1.0 / size());
  combine(block.dtype, collective.result.data(), terms, block.count);
  collective.time += reduction_seconds(size(), block.bytes());
}

void SimulatedNetwork::deliver() {
  for (SimulatedChannel* node : nodes_) {
    gather_groups(*node);
    for (const auto& [purpose, number] : node->taken) take(purpose, number);
    node->taken.clear();
    for (SimulatedChannel::PointToPointMessage& message : node->unsent_messages) {
      const Rank to = message.to;
      (*this)[to].put_into_inbox(node->rank(), std::move(message));
    }
    node->unsent_messages.clear();
  }
  run_collectives();
  ++pass_;
  // No node is more than a round behind.
  while (!means_.empty() && means_.begin()->first.first + 2 < means_.rbegin()->first.first)
    means_.erase(means_.begin());
}

}  // namespace starling::simulate
