#include "starling/flock/byte_operations.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/fabric/device_messages.h"
#include "starling/flock/broadcast.h"
#include "starling/flock/flock.h"
#include "starling/flock/flock_state.h"
#include "starling/flock/gather.h"
#include "starling/flock/long_average.h"
#include "starling/flock/memory_check.h"
#include "starling/flock/native_reduce.h"
#include "starling/flock/neighbor_average.h"
#include "starling/flock/reduce_all.h"
#include "starling/flock/staged_reduce.h"
#include "starling/kernel/arithmetic.h"
#include "starling/record/log.h"

namespace starling::flock {
namespace {

void need_floating(const Pieces& pieces, std::string_view name) {
  for (const Piece& piece : pieces)
    if (!is_floating(piece.in.dtype))
      throw InvalidArgument(fmt::format("{}: {} cannot be averaged; use a floating type", name,
                                        starling::name(piece.in.dtype)));
}

// Throws InvalidArgument unless the pieces can be averaged.
void check_averaged(const std::shared_ptr<FlockState>& state, const Pieces& pieces, const Name& name) {
  need_floating(pieces, name.text());
  check_memory(*state->fabric, pieces, name.text());
}

// Starts the operation; operations of several phases also progress while this rank waits for others.
template <typename T>
Pending started(const std::shared_ptr<FlockState>& state, const std::shared_ptr<T>& operation,
                bool has_phases) {
  const DeviceGuard guard(*state->runtime);
  operation->start();
  if (has_phases && !operation->ended()) state->runtime->add_in_flight(operation);
  return Pending(operation);
}

}  // namespace

const std::shared_ptr<FlockState>& ByteOperations::state() const {
  return flock_.state_;
}

// The receiver sends no notice after reading, so this polls until at most half of the limit is unread.
void ByteOperations::await_reader(const Topic& topic, Rank to) const {
  Fabric& fabric = *state()->fabric;
  const std::uint64_t limit = state()->runtime->send_limit;
  if (!fabric.backlogged(to, limit)) return;
  const auto started = std::chrono::steady_clock::now();
  const std::chrono::duration<double> timeout = state()->runtime->timeout.load();
  const auto end = started + state()->runtime->timeout.load();
  constexpr std::chrono::seconds kTellAfter{5};
  bool told = false;
  while (fabric.alive(to) && fabric.backlogged(to, limit / 2)) {
    const std::uint32_t ticket = fabric.wake_count();
    state()->runtime->advance_in_flight(nullptr);
    state()->runtime->enter();
    const auto now = std::chrono::steady_clock::now();
    const std::string text = fmt::format(
        "rank {} to read what rank {} has sent it in {}: the limit of {} unread bytes is reached "
        "(set_send_limit, STARLING_SEND_LIMIT)",
        to, state()->self(), topic.text, limit);
    if (now > end)
      throw TimedOut(fmt::format("waited {:.3g} s, longer than the timeout, for {}", timeout.count(), text));
    if (now - started > kTellAfter && !told) {
      told = true;
      log(LogLevel::normal, fmt::format("rank {} has been waiting 5 s for {}", state()->self(), text));
    }
    fabric.sleep(ticket, {}, std::min(end, now + std::chrono::milliseconds(1)));
  }
}

Pending ByteOperations::scheduled(ScheduleCursor& cursor, Pieces pieces, Outgoing memory,
                                  const Name& name) const {
  check_averaged(state(), pieces, name);
  Topic& topic = state()->topic(name);
  StepPlan plan;
  state()->plan_next_step(cursor, plan);
  if (LongAverage::suits(plan.exchange, pieces))
    return started(
        state(), std::make_shared<LongAverage>(state(), topic, std::move(plan), pieces[0], std::move(memory)),
        false);
  auto operation = std::make_shared<NeighborAverage>(state(), topic, std::move(plan), std::move(pieces),
                                                     std::move(memory));
  return started(state(), operation, operation->has_phases());
}

Pending ByteOperations::neighbor_allreduce(Pieces pieces, Outgoing memory, Name name) const {
  return scheduled(state()->main, std::move(pieces), std::move(memory), name);
}

Pending ByteOperations::hierarchical_neighbor_allreduce(Pieces pieces, Name name) const {
  if (!state()->schedule_of(state()->machines)) Flock(flock_).set_machine_schedule(kDefaultFlockTopology);
  return scheduled(state()->machines, std::move(pieces), {}, name);
}

// Ranks with equal local ranks exchange, between machines.
Pending ByteOperations::hierarchical_neighbor_allreduce(Pieces pieces, const Weighted& machines,
                                                        Name name) const {
  check_averaged(state(), pieces, name);
  const Rank local = flock_.local_size();
  const auto ranks_of = [&](const std::map<Rank, double>& side) {
    std::map<Rank, double> result;
    for (const auto& [machine, weight] : side) {
      if (machine < 0 || machine >= flock_.machine_size())
        throw InvalidArgument(fmt::format("{}: machine {} is not one of the {} machines 0..{}", name.text(),
                                          machine, flock_.machine_size(), flock_.machine_size() - 1));
      result[machine * local + flock_.local_rank()] = weight;
    }
    return result;
  };
  if (!machines.sources || !machines.destinations)
    throw InvalidArgument(fmt::format("{}: give sources and destinations", name.text()));
  Weighted weights =
      global({machines.self_weight, ranks_of(*machines.sources), ranks_of(*machines.destinations)}, name);
  auto members = std::make_shared<std::vector<Rank>>();
  for (Rank q = 0; q < local; ++q)
    members->push_back(state()->global(flock_.machine_rank() * local + q, name.text()));
  std::sort(members->begin(), members->end());
  if (local > 1) weights.group = {0, 1, local, 1, members};
  auto operation = std::make_shared<NeighborAverage>(state(), state()->topic(name), weights, false,
                                                     std::move(pieces), Outgoing());
  return started(state(), operation, operation->has_phases());
}

// The same weights, by ranks of the whole flock.
Weighted ByteOperations::global(const Weighted& weights, const Name& name) const {
  const auto translated = [&](const std::map<Rank, double>& side) {
    std::map<Rank, double> result;
    for (const auto& [peer, weight] : side) {
      result[state()->global(peer, name.text())] = weight;
      if (peer == flock_.rank())
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

bool ByteOperations::has_messages_in(MemoryKind memory) const {
  return memory == MemoryKind::host || state()->fabric->device_messages() != nullptr;
}

// All ranks gather the sides that are given: the collective that Weighted describes.
Weighted ByteOperations::inferred(Weighted weights, const Name& name) const {
  if (!weights.sources && !weights.destinations)
    throw InvalidArgument(fmt::format("{}: give sources, destinations or both", name.text()));
  const bool from_sources = weights.sources.has_value();
  std::vector<std::int32_t> mine = {flock_.rank(), 0};
  for (const auto& [peer, weight] : from_sources ? *weights.sources : *weights.destinations)
    mine.push_back(peer);
  mine[1] = static_cast<std::int32_t>(mine.size()) - 2;
  const auto all =
      Flock(flock_).allgather(mine, std::string(name.text()) + (from_sources ? "/sources" : "/destinations"));
  std::map<Rank, double> other;
  for (std::size_t i = 0; i < all.size(); i += 2 + static_cast<std::size_t>(all[i + 1])) {
    if (i + 1 >= all.size() || all[i + 1] < 0 || static_cast<std::size_t>(all[i + 1]) > all.size() - i - 2)
      throw Error(fmt::format("{}: rank {} sent a damaged list of ranks", name.text(), all[i]));
    for (std::size_t k = 0; k < static_cast<std::size_t>(all[i + 1]); ++k)
      if (all[i + 2 + k] == flock_.rank()) other[all[i]] = 1;
  }
  (from_sources ? weights.destinations : weights.sources) = std::move(other);
  return weights;
}

Pending ByteOperations::neighbor_allreduce(Pieces pieces, Outgoing memory, const Weighted& given,
                                           Name name) const {
  check_averaged(state(), pieces, name);
  global(given, name);  // throws for bad ranks before anything is sent
  const bool both = given.sources && given.destinations;
  const Weighted weights = global(both ? given : inferred(given, name), name);
  return started(state(),
                 std::make_shared<NeighborAverage>(state(), state()->topic(name), weights, false,
                                                   std::move(pieces), std::move(memory)),
                 false);
}

Pending ByteOperations::pair_gossip(Pieces pieces, Rank peer, double self_weight, Name name) const {
  check_averaged(state(), pieces, name);
  const Weighted weights = global({self_weight, {{{peer, 1 - self_weight}}}, {{{peer, 1.0}}}}, name);
  return started(state(),
                 std::make_shared<NeighborAverage>(state(), state()->topic(name), weights, true,
                                                   std::move(pieces), Outgoing()),
                 false);
}

Pending ByteOperations::allreduce(Pieces pieces, Reduction reduction, Name name, bool complete) const {
  check_memory(*state()->fabric, pieces, name.text());
  if (reduction == Reduction::average) need_floating(pieces, name.text());
  for (const Piece& piece : pieces)
    if (piece.in.dtype != pieces[0].in.dtype)
      throw InvalidArgument(fmt::format("{}: tensors of one group have one type, not {} and {}", name.text(),
                                        starling::name(pieces[0].in.dtype), starling::name(piece.in.dtype)));
  Topic& topic = state()->topic(name);
  const AllreduceAlgorithm algorithm = state()->allreduce_algorithm;
  if (algorithm == AllreduceAlgorithm::native && NativeReduce::serves(*state(), pieces, reduction))
    return started(state(), std::make_shared<NativeReduce>(state(), topic, std::move(pieces), reduction),
                   true);
  const auto start = [&](const auto& operation) {
    if (complete) operation->await_payloads();
    return started(state(), operation, true);
  };
  if (algorithm != AllreduceAlgorithm::direct && algorithm != AllreduceAlgorithm::native)
    return start(std::make_shared<StagedReduce>(state(), topic, std::move(pieces), reduction, algorithm));
  return start(std::make_shared<ReduceAll>(state(), topic, std::move(pieces), reduction, nullptr));
}

Pending ByteOperations::reduce_scatter(ConstBuffer in, Room room, Reduction reduction, Name name) const {
  Pieces pieces = {{in, {}, 0}};
  check_memory(*state()->fabric, pieces, name.text());
  if (reduction == Reduction::average) need_floating(pieces, name.text());
  return started(state(),
                 std::make_shared<ReduceAll>(state(), state()->topic(name), std::move(pieces), reduction,
                                             std::move(room)),
                 true);
}

Pending ByteOperations::broadcast(Pieces pieces, Rank root, Name name) const {
  check_memory(*state()->fabric, pieces, name.text());
  const Rank from = state()->global(root, name.text());
  return started(state(), std::make_shared<Broadcast>(state(), state()->topic(name), std::move(pieces), from),
                 true);
}

Pending ByteOperations::allgather(ConstBuffer in, Room room, Name name) const {
  check_messages_in(*state()->fabric, in.memory, name.text());
  return started(state(), std::make_shared<GatherAll>(state(), state()->topic(name), in, std::move(room)),
                 true);
}

Pending ByteOperations::neighbor_allgather(ConstBuffer in, Room room, Name name) const {
  check_messages_in(*state()->fabric, in.memory, name.text());
  Topic& topic = state()->topic(name);
  StepPlan plan;
  state()->plan_next_step(state()->main, plan);
  return started(state(),
                 std::make_shared<GatherNeighbors>(state(), topic, std::move(plan), in, std::move(room)),
                 false);
}

Pending ByteOperations::neighbor_allgather(ConstBuffer in, Room room, const std::vector<Rank>& sources,
                                           const std::vector<Rank>& destinations, Name name) const {
  check_messages_in(*state()->fabric, in.memory, name.text());
  StepPlan plan;
  for (const Rank source : sources) plan.exchange.add_source(state()->global(source, name.text()), 1);
  for (const Rank to : destinations) plan.exchange.add_destination(state()->global(to, name.text()));
  return started(
      state(),
      std::make_shared<GatherNeighbors>(state(), state()->topic(name), std::move(plan), in, std::move(room)),
      false);
}

Pending ByteOperations::recv(Buffer block, Rank from, Name name) const {
  check_messages_in(*state()->fabric, block.memory, name.text());
  const Rank source = state()->global(from, name.text());
  return Pending(std::make_shared<Receive>(state(), state()->topic(name), block, source));
}

void ByteOperations::send(ConstBuffer block, Rank to, Name name) const {
  check_messages_in(*state()->fabric, block.memory, name.text());
  const Rank peer = state()->global(to, name.text());
  Topic& topic = state()->topic(name);
  const DeviceGuard guard(*state()->runtime);
  Trace trace(state()->runtime->recorder, {topic.text, topic.recorded}, RecordKind::send, topic.record_step(),
              block.memory);
  trace.peer(peer);
  await_reader(topic, peer);
  const Outgoing message = reserve(*state()->fabric, block.bytes(), block.memory);
  arithmetic_in(block.memory).copy(message.buffer(block.dtype, block.count), block);
  MessageHeader header;
  header.name = topic.hash;
  header.sequence = state()->mailbox.next_to(topic, peer);
  header.count = block.count;
  header.dtype = element_code(block.dtype, block.memory);
  state()->fabric->post(message, header, peer);
  trace.bytes(block.bytes());
  state()->runtime->bytes_sent += block.bytes();
  trace.end(false);
}

void ByteOperations::record_update(const std::string& name, Step step,
                                   const std::function<void()>& pass) const {
  const Recorder& recorder = state()->runtime->recorder;
  if (!recorder.devices) return pass();
  TimelineRecord record;
  record.name = recorder.timeline->name(name + "/update");
  record.kind = RecordKind::update;
  record.step = step;
  const DeviceTimes::Begin begin = recorder.devices->begin();
  pass();
  recorder.devices->end(begin, record);
}

}  // namespace starling::flock
