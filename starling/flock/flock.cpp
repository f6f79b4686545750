#include "starling/flock/flock.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/flock/broadcast.h"
#include "starling/flock/long_average.h"
#include "starling/flock/reduce_all.h"
#include "starling/kernel/copy.h"
#include "starling/topology/registry.h"

namespace starling {
namespace {

void check_weights(const Core& core, const std::map<Rank, double>& weights, std::string_view name) {
  for (const auto& [peer, weight] : weights) {
    core.check_peer(peer, name);
    if (peer == core.rank())
      throw InvalidArgument(
          fmt::format("{}: rank {} is this rank itself; its weight is self_weight", name, peer));
  }
}

void need_floating(const Pieces& pieces, std::string_view name) {
  for (const Piece& piece : pieces)
    if (!is_floating(piece.in.dtype))
      throw InvalidArgument(fmt::format("{}: an average of {} is not one; use a floating type", name,
                                        starling::name(piece.in.dtype)));
}

// Starts what was made; operations of several phases also go on while this rank waits for others.
template <typename T>
Pending started(const std::shared_ptr<Core>& core, const std::shared_ptr<T>& operation, bool has_phases) {
  operation->start();
  if (has_phases && !operation->ended()) core->add_in_flight(operation);
  return Pending(operation);
}

}  // namespace

Flock::Flock(std::shared_ptr<Fabric> fabric) : core_(std::make_shared<Core>(std::move(fabric))) {
  set_schedule("exponential");
}

void Flock::set_schedule(const std::string& spec) {
  set_schedule(make_schedule(spec, size()));
}

void Flock::set_timeout(std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) throw InvalidArgument("the timeout must be longer than nothing");
  core_->timeout = timeout;
}

Topic& Flock::topic(const Name& name) {
  core_->enter();
  return core_->mailbox.topic(name);
}

Pieces Flock::checked(Piece piece, MutableBlock out, const Name& name) {
  if (piece.in.dtype != out.dtype || piece.in.count != out.count)
    throw InvalidArgument(fmt::format("{}: the input has {} x {}, the output {} x {}", name.text(),
                                      piece.in.count, starling::name(piece.in.dtype), out.count,
                                      starling::name(out.dtype)));
  piece.out = out.data;
  return {piece};
}

Pieces Flock::checked(Pieces pieces, const Name& name) {
  if (pieces.empty()) throw InvalidArgument(fmt::format("{}: a group of no tensors", name.text()));
  return pieces;
}

Pending Flock::start_neighbor_allreduce(Pieces pieces, Outgoing memory, Name name) {
  need_floating(pieces, name.text());
  Topic& topic = this->topic(name);
  Core::Turn turn;
  core_->next_turn(turn);
  if (!memory && LongAverage::suits(turn.exchange, pieces))
    return started(core_, std::make_shared<LongAverage>(core_, topic, std::move(turn), pieces[0]), false);
  auto operation =
      std::make_shared<NeighborAverage>(core_, topic, std::move(turn), std::move(pieces), std::move(memory));
  return started(core_, operation, operation->has_phases());
}

// Everybody tells everybody the side it has; the collective that Weighted speaks of.
Weighted Flock::inferred(Weighted weights, const Name& name) {
  if (!weights.sources && !weights.destinations)
    throw InvalidArgument(fmt::format("{}: give sources, destinations or both", name.text()));
  const bool from_sources = weights.sources.has_value();
  std::vector<std::int32_t> mine = {rank(), 0};
  for (const auto& [peer, weight] : from_sources ? *weights.sources : *weights.destinations)
    mine.push_back(peer);
  mine[1] = static_cast<std::int32_t>(mine.size()) - 2;
  const auto all = allgather(mine, std::string(name.text()) + (from_sources ? "/sources" : "/destinations"));
  std::map<Rank, double> other;
  for (std::size_t i = 0; i < all.size(); i += 2 + static_cast<std::size_t>(all[i + 1]))
    for (std::size_t k = 0; k < static_cast<std::size_t>(all[i + 1]); ++k)
      if (all[i + 2 + k] == rank()) other[all[i]] = 1;
  (from_sources ? weights.destinations : weights.sources) = std::move(other);
  return weights;
}

Pending Flock::start_neighbor_allreduce(Pieces pieces, Outgoing memory, const Weighted& given, Name name) {
  need_floating(pieces, name.text());
  if (given.sources) check_weights(*core_, *given.sources, name.text());
  if (given.destinations) check_weights(*core_, *given.destinations, name.text());
  const bool both = given.sources && given.destinations;
  const Weighted weights = both ? given : inferred(given, name);
  return started(core_,
                 std::make_shared<NeighborAverage>(core_, topic(name), weights, false, std::move(pieces),
                                                   std::move(memory)),
                 false);
}

Pending Flock::start_pair_gossip(Pieces pieces, Rank peer, double self_weight, Name name) {
  need_floating(pieces, name.text());
  const Weighted weights{self_weight, {{{peer, 1 - self_weight}}}, {{{peer, 1.0}}}};
  check_weights(*core_, *weights.sources, name.text());
  return started(
      core_,
      std::make_shared<NeighborAverage>(core_, topic(name), weights, true, std::move(pieces), Outgoing()),
      false);
}

Pending Flock::start_allreduce(Pieces pieces, Reduction reduction, Name name) {
  if (reduction == Reduction::average) need_floating(pieces, name.text());
  for (const Piece& piece : pieces)
    if (piece.in.dtype != pieces[0].in.dtype)
      throw InvalidArgument(fmt::format("{}: tensors of one group have one type, not {} and {}", name.text(),
                                        starling::name(pieces[0].in.dtype), starling::name(piece.in.dtype)));
  return started(
      core_, std::make_shared<ReduceAll>(core_, topic(name), std::move(pieces), reduction, nullptr), true);
}

Pending Flock::start_reduce_scatter(ConstBlock in, Room room, Reduction reduction, Name name) {
  Pieces pieces = {{in, nullptr, 0}};
  if (reduction == Reduction::average) need_floating(pieces, name.text());
  return started(
      core_, std::make_shared<ReduceAll>(core_, topic(name), std::move(pieces), reduction, std::move(room)),
      true);
}

Pending Flock::start_broadcast(Pieces pieces, Rank root, Name name) {
  core_->check_peer(root, name.text());
  return started(core_, std::make_shared<Broadcast>(core_, topic(name), std::move(pieces), root), true);
}

Pending Flock::start_allgather(ConstBlock in, Room room, Name name) {
  return started(core_, std::make_shared<GatherAll>(core_, topic(name), in, std::move(room)), true);
}

Pending Flock::start_neighbor_allgather(ConstBlock in, Room room, Name name) {
  Topic& topic = this->topic(name);
  Core::Turn turn;
  core_->next_turn(turn);
  return started(core_, std::make_shared<GatherNeighbors>(core_, topic, std::move(turn), in, std::move(room)),
                 false);
}

Pending Flock::barrier_nonblocking(Name name) {
  return start_allreduce({{{DType::uint8, nullptr, 0}, nullptr, 0}}, Reduction::sum, name);
}

Pending Flock::start_recv(MutableBlock block, Rank from, Name name) {
  core_->check_peer(from, name.text());
  return Pending(std::make_shared<Receive>(core_, topic(name), block, from));
}

void Flock::start_send(ConstBlock block, Rank to, Name name) {
  core_->check_peer(to, name.text());
  Topic& topic = this->topic(name);
  const Outgoing message = core_->fabric->reserve(block.bytes());
  copy_bytes(message.bytes().data(), block.data, block.bytes());
  MessageHeader header;
  header.name = topic.hash;
  header.sequence = core_->mailbox.next_to(topic, to);
  header.count = block.count;
  header.dtype = static_cast<std::uint8_t>(block.dtype);
  core_->fabric->post(message, header, to);
}

}  // namespace starling
