#include "starling/flock/flock.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

#include "starling/base/launcher_notice.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/flock/broadcast.h"
#include "starling/flock/long_average.h"
#include "starling/flock/native_reduce.h"
#include "starling/flock/reduce_all.h"
#include "starling/flock/staged_reduce.h"
#include "starling/kernel/copy.h"
#include "starling/record/log.h"
#include "starling/topology/hierarchical.h"
#include "starling/topology/registry.h"

namespace starling {
namespace {

// 0: not pretended.
Rank ranks_per_machine() {
  for (const char* variable : {"STARLING_RANKS_PER_MACHINE", "BLUEFOG_NODES_PER_MACHINE"}) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == 0) continue;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end != 0 || value < 1 || value > 1'000'000)
      throw InvalidArgument(fmt::format("{}={} is not a number of ranks", variable, text));
    return static_cast<Rank>(value);
  }
  return 0;
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
  if (has_phases && !operation->ended()) core->hub->add_in_flight(operation);
  return Pending(operation);
}

}  // namespace

Flock::Flock(std::shared_ptr<Fabric> fabric) : core_(std::make_shared<Core>(std::move(fabric))) {
  core_->set_course(core_->main, make_schedule("exponential", size()));
}

void Flock::set_schedule(const SchedulePtr& schedule) {
  core_->set_course(core_->main, schedule);
  core_->note_schedule_is_set(true);
}

void Flock::set_schedule(const std::string& spec) {
  set_schedule(make_schedule(spec, size()));
}

void Flock::on_peer_failure(OnPeerFailure policy) {
  core_->on_peer_failure = policy;
  tell_launcher(policy == OnPeerFailure::reweight ? LauncherNotice::goes_on
                                                  : LauncherNotice::needs_everybody);
}

bool Flock::loses_messages() const {
  return starling::loses_messages(*core_->fabric);
}

void Flock::set_send_limit(std::uint64_t bytes) {
  if (bytes == 0) throw InvalidArgument("the send limit must be more than 0 bytes");
  core_->hub->send_limit = bytes;
}

// The receiver's reading rings no bell here, so this looks again and again, and lets go when half is read.
void Flock::await_reader(const Topic& topic, Rank to) const {
  Fabric& fabric = *core_->fabric;
  const std::uint64_t limit = core_->hub->send_limit;
  if (!fabric.backlogged(to, limit)) return;
  const auto started = std::chrono::steady_clock::now();
  const std::chrono::duration<double> timeout = core_->hub->timeout.load();
  const auto end = started + core_->hub->timeout.load();
  constexpr std::chrono::seconds kTellAfter{5};
  bool told = false;
  while (fabric.alive(to) && fabric.backlogged(to, limit / 2)) {
    const std::uint32_t ticket = fabric.ticket();
    core_->hub->advance_in_flight(nullptr);
    core_->hub->enter();
    const auto now = std::chrono::steady_clock::now();
    const std::string text = fmt::format(
        "rank {} to read what rank {} has sent it in {}: the limit of {} unread bytes is reached "
        "(set_send_limit, STARLING_SEND_LIMIT)",
        to, core_->self(), topic.text, limit);
    if (now > end)
      throw TimedOut(fmt::format("waited {:.3g} s, longer than the timeout, for {}", timeout.count(), text));
    if (now - started > kTellAfter && !told) {
      told = true;
      log(LogLevel::normal, fmt::format("rank {} has been waiting 5 s for {}", core_->self(), text));
    }
    fabric.sleep(ticket, {}, std::min(end, now + std::chrono::milliseconds(1)));
  }
}

void Flock::set_timeout(std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) throw InvalidArgument("the timeout must be longer than nothing");
  core_->hub->timeout = timeout;
}

Flock::Flock(const Flock& parent, const std::vector<Rank>& global_ranks) {
  const std::uint64_t count = parent.core_->count_flocks(global_ranks);
  std::uint64_t identity = register_key(parent.core_->identity + 1, count);
  for (const Rank rank : global_ranks) identity = register_key(identity, static_cast<std::uint64_t>(rank));
  core_ = std::make_shared<Core>(*parent.core_, global_ranks, identity);
  core_->set_course(core_->main, make_schedule("exponential", size()));
}

Flock Flock::split(std::int64_t colour, std::int64_t key) {
  const auto all = allgather(std::vector<std::int64_t>{colour, key, rank()}, "split");
  std::vector<std::pair<std::int64_t, Rank>> chosen;
  for (std::size_t i = 0; i < all.size(); i += 3)
    if (all[i] == colour && (colour >= 0 || all[i + 2] == rank()))
      chosen.emplace_back(all[i + 1], static_cast<Rank>(all[i + 2]));
  std::sort(chosen.begin(), chosen.end());
  std::vector<Rank> ranks;
  for (const auto& [order, rank] : chosen) ranks.push_back(core_->global(rank, "split"));
  return {*this, ranks};
}

Flock Flock::group(const std::vector<Rank>& ranks) {
  std::vector<Rank> global_ranks;
  for (const Rank rank : ranks) {
    const Rank found = core_->global(rank, "group");
    if (std::find(global_ranks.begin(), global_ranks.end(), found) != global_ranks.end())
      throw InvalidArgument(fmt::format("group: rank {} is there twice", rank));
    global_ranks.push_back(found);
  }
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end())
    throw InvalidArgument(fmt::format("group: rank {} is not one of its members, {}", rank(), join_words([&] {
                                        std::vector<std::string> words;
                                        for (const Rank one : ranks) words.push_back(std::to_string(one));
                                        return words;
                                      }())));
  return {*this, global_ranks};
}

Rank Flock::local_size() const {
  const Rank given = ranks_per_machine();
  if (given == 0) {
    const Rank each = core_->fabric->ranks_per_host();
    const bool one_host = each == core_->fabric->size();
    return one_host ? size() : size() == core_->fabric->size() ? each : 1;
  }
  if (size() % given != 0)
    throw InvalidArgument(fmt::format("{} ranks cannot be dealt to machines of {}", size(), given));
  return given;
}

void Flock::set_machine_schedule(const std::string& spec) {
  set_machine_schedule(make_schedule(spec, machine_size()));
}

void Flock::set_machine_schedule(const SchedulePtr& between_machines) {
  core_->set_course(core_->machines, hierarchical_schedule(between_machines, local_size()));
}

View Flock::view() const {
  View view = *core_->membership.newest();
  std::erase_if(view.members, [&](Rank global_rank) { return core_->own(global_rank) == core_->size(); });
  for (Rank& member : view.members) member = core_->own(member);
  return view;
}

Pieces Flock::checked(Piece piece, MutableBlock out, const Name& name) {
  if (piece.in.dtype != out.dtype || piece.in.count != out.count)
    throw InvalidArgument(fmt::format("{}: the input has {} x {}, the output {} x {}", name.text(),
                                      piece.in.count, starling::name(piece.in.dtype), out.count,
                                      starling::name(out.dtype)));
  piece.out = out.data;
  return {piece};
}

void Flock::refuse_alias(const Name& name) {
  throw InvalidArgument(
      fmt::format("{}: the result cannot go where the input is; its length differs", name.text()));
}

Pieces Flock::checked(Pieces pieces, const Name& name) {
  if (pieces.empty()) throw InvalidArgument(fmt::format("{}: a group of no tensors", name.text()));
  return pieces;
}

Pending Flock::start_scheduled(Course& course, Pieces pieces, Outgoing memory, const Name& name) {
  need_floating(pieces, name.text());
  Topic& topic = core_->topic(name);
  Core::Turn turn;
  core_->next_turn(course, turn);
  if (LongAverage::suits(turn.exchange, pieces))
    return started(core_,
                   std::make_shared<LongAverage>(core_, topic, std::move(turn), pieces[0], std::move(memory)),
                   false);
  auto operation =
      std::make_shared<NeighborAverage>(core_, topic, std::move(turn), std::move(pieces), std::move(memory));
  return started(core_, operation, operation->has_phases());
}

Pending Flock::start_neighbor_allreduce(Pieces pieces, Outgoing memory, Name name) {
  return start_scheduled(core_->main, std::move(pieces), std::move(memory), name);
}

Pending Flock::start_hierarchical(Pieces pieces, Name name) {
  if (!core_->schedule_of(core_->machines)) set_machine_schedule("exponential");
  return start_scheduled(core_->machines, std::move(pieces), {}, name);
}

// Equal local ranks of different machines meet.
Pending Flock::start_hierarchical(Pieces pieces, const Weighted& machines, Name name) {
  need_floating(pieces, name.text());
  const Rank local = local_size();
  const auto ranks_of = [&](const std::map<Rank, double>& side) {
    std::map<Rank, double> result;
    for (const auto& [machine, weight] : side) {
      if (machine < 0 || machine >= machine_size())
        throw InvalidArgument(fmt::format("{}: machine {} is not one of the {} machines 0..{}", name.text(),
                                          machine, machine_size(), machine_size() - 1));
      result[machine * local + local_rank()] = weight;
    }
    return result;
  };
  if (!machines.sources || !machines.destinations)
    throw InvalidArgument(fmt::format("{}: give sources and destinations", name.text()));
  Weighted weights =
      global({machines.self_weight, ranks_of(*machines.sources), ranks_of(*machines.destinations)}, name);
  auto members = std::make_shared<std::vector<Rank>>();
  for (Rank q = 0; q < local; ++q) members->push_back(core_->global(machine_rank() * local + q, name.text()));
  std::sort(members->begin(), members->end());
  if (local > 1) weights.group = {0, 1, local, 1, members};
  auto operation = std::make_shared<NeighborAverage>(core_, core_->topic(name), weights, false,
                                                     std::move(pieces), Outgoing());
  return started(core_, operation, operation->has_phases());
}

// The same weights by ranks of the whole flock.
Weighted Flock::global(const Weighted& weights, const Name& name) const {
  const auto translated = [&](const std::map<Rank, double>& side) {
    std::map<Rank, double> result;
    for (const auto& [peer, weight] : side) {
      result[core_->global(peer, name.text())] = weight;
      if (peer == rank())
        throw InvalidArgument(
            fmt::format("{}: rank {} is this rank itself; its weight is self_weight", name.text(), peer));
    }
    return result;
  };
  Weighted result{weights.self_weight};
  if (weights.sources) result.sources = translated(*weights.sources);
  if (weights.destinations) result.destinations = translated(*weights.destinations);
  return result;
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
  for (std::size_t i = 0; i < all.size(); i += 2 + static_cast<std::size_t>(all[i + 1])) {
    if (i + 1 >= all.size() || all[i + 1] < 0 || static_cast<std::size_t>(all[i + 1]) > all.size() - i - 2)
      throw Error(fmt::format("{}: rank {} sent a damaged list of ranks", name.text(), all[i]));
    for (std::size_t k = 0; k < static_cast<std::size_t>(all[i + 1]); ++k)
      if (all[i + 2 + k] == rank()) other[all[i]] = 1;
  }
  (from_sources ? weights.destinations : weights.sources) = std::move(other);
  return weights;
}

Pending Flock::start_neighbor_allreduce(Pieces pieces, Outgoing memory, const Weighted& given, Name name) {
  need_floating(pieces, name.text());
  global(given, name);  // bad ranks are told before anything is sent
  const bool both = given.sources && given.destinations;
  const Weighted weights = global(both ? given : inferred(given, name), name);
  return started(core_,
                 std::make_shared<NeighborAverage>(core_, core_->topic(name), weights, false,
                                                   std::move(pieces), std::move(memory)),
                 false);
}

Pending Flock::start_pair_gossip(Pieces pieces, Rank peer, double self_weight, Name name) {
  need_floating(pieces, name.text());
  const Weighted weights = global({self_weight, {{{peer, 1 - self_weight}}}, {{{peer, 1.0}}}}, name);
  return started(core_,
                 std::make_shared<NeighborAverage>(core_, core_->topic(name), weights, true,
                                                   std::move(pieces), Outgoing()),
                 false);
}

Pending Flock::start_allreduce(Pieces pieces, Reduction reduction, Name name) {
  if (reduction == Reduction::average) need_floating(pieces, name.text());
  for (const Piece& piece : pieces)
    if (piece.in.dtype != pieces[0].in.dtype)
      throw InvalidArgument(fmt::format("{}: tensors of one group have one type, not {} and {}", name.text(),
                                        starling::name(pieces[0].in.dtype), starling::name(piece.in.dtype)));
  Topic& topic = core_->topic(name);
  const AllreduceWay way = core_->allreduce_way;
  if (way == AllreduceWay::native && NativeReduce::serves(*core_, pieces, reduction))
    return started(core_, std::make_shared<NativeReduce>(core_, topic, std::move(pieces), reduction), true);
  if (way != AllreduceWay::direct && way != AllreduceWay::native)
    return started(core_, std::make_shared<StagedReduce>(core_, topic, std::move(pieces), reduction, way),
                   true);
  return started(core_, std::make_shared<ReduceAll>(core_, topic, std::move(pieces), reduction, nullptr),
                 true);
}

Pending Flock::start_reduce_scatter(ConstBlock in, Room room, Reduction reduction, Name name) {
  Pieces pieces = {{in, nullptr, 0}};
  if (reduction == Reduction::average) need_floating(pieces, name.text());
  return started(
      core_,
      std::make_shared<ReduceAll>(core_, core_->topic(name), std::move(pieces), reduction, std::move(room)),
      true);
}

Pending Flock::start_broadcast(Pieces pieces, Rank root, Name name) {
  const Rank from = core_->global(root, name.text());
  return started(core_, std::make_shared<Broadcast>(core_, core_->topic(name), std::move(pieces), from),
                 true);
}

Pending Flock::start_allgather(ConstBlock in, Room room, Name name) {
  return started(core_, std::make_shared<GatherAll>(core_, core_->topic(name), in, std::move(room)), true);
}

Pending Flock::start_neighbor_allgather(ConstBlock in, Room room, Name name) {
  Topic& topic = core_->topic(name);
  Core::Turn turn;
  core_->next_turn(core_->main, turn);
  return started(core_, std::make_shared<GatherNeighbors>(core_, topic, std::move(turn), in, std::move(room)),
                 false);
}

Pending Flock::start_neighbor_allgather(ConstBlock in, Room room, const std::vector<Rank>& sources,
                                        const std::vector<Rank>& destinations, Name name) {
  Core::Turn turn;
  for (const Rank source : sources) turn.exchange.hear(core_->global(source, name.text()), 1);
  for (const Rank to : destinations) turn.exchange.tell(core_->global(to, name.text()));
  return started(
      core_,
      std::make_shared<GatherNeighbors>(core_, core_->topic(name), std::move(turn), in, std::move(room)),
      false);
}

Pending Flock::barrier_nonblocking(Name name) {
  return start_allreduce({{{DType::uint8, nullptr, 0}, nullptr, 0}}, Reduction::sum, name);
}

Pending Flock::start_recv(MutableBlock block, Rank from, Name name) {
  const Rank source = core_->global(from, name.text());
  return Pending(std::make_shared<Receive>(core_, core_->topic(name), block, source));
}

void Flock::start_send(ConstBlock block, Rank to, Name name) {
  const Rank peer = core_->global(to, name.text());
  Topic& topic = core_->topic(name);
  Trace trace(core_->hub->recorder, {topic.text, topic.recorded}, RecordKind::send, 0);
  trace.peer(peer);
  await_reader(topic, peer);
  const Outgoing message = core_->fabric->reserve(block.bytes());
  copy_bytes(message.bytes().data(), block.data, block.bytes());
  MessageHeader header;
  header.name = topic.hash;
  header.sequence = core_->mailbox.next_to(topic, peer);
  header.count = block.count;
  header.dtype = static_cast<std::uint8_t>(block.dtype);
  core_->fabric->post(message, header, peer);
  trace.bytes(block.bytes());
  core_->hub->bytes_sent += block.bytes();
  trace.end(false);
}

}  // namespace starling
