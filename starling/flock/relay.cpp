#include "starling/flock/relay.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/flock/flock.h"
#include "starling/flock/flock_state.h"
#include "starling/flock/memory_check.h"
#include "starling/flock/relay_sum.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

constexpr Step kMostTrees = 8;

// A relay needs n - 1 undirected edges that connect all ranks, in every round.
void check_tree(const Schedule& schedule, Step round) {
  const Rank n = schedule.size();
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(
        fmt::format("a relay needs a tree, such as chain, binary-tree or star; {} on {} ranks {}",
                    schedule.name(), n, why));
  };
  std::size_t links = 0;
  std::vector<std::vector<Rank>> around(static_cast<std::size_t>(n));
  for (Rank rank = 0; rank < n; ++rank) {
    const Exchange exchange = schedule.exchange(round, rank);
    if (exchange.group.size() > 1) refuse("takes group means");
    for (const Source& source : exchange.sources)
      around[static_cast<std::size_t>(rank)].push_back(source.rank);
    links += exchange.sources.size();
  }
  std::vector<bool> reached(static_cast<std::size_t>(n));
  std::vector<Rank> open = {0};
  std::size_t found = 0;
  reached[0] = true;
  while (!open.empty()) {
    const Rank rank = open.back();
    open.pop_back();
    ++found;
    for (const Rank next : around[static_cast<std::size_t>(rank)]) {
      const auto& back = around[static_cast<std::size_t>(next)];
      if (std::find(back.begin(), back.end(), rank) == back.end()) refuse("has an edge of one direction");
      if (reached[static_cast<std::size_t>(next)]) continue;
      reached[static_cast<std::size_t>(next)] = true;
      open.push_back(next);
    }
  }
  if (found != static_cast<std::size_t>(n)) refuse("is not connected");
  if (links != 2 * (static_cast<std::size_t>(n) - 1)) refuse("has a cycle");
}

}  // namespace

void check_relay_trees(const Schedule& schedule) {
  if (schedule.random() || schedule.period() < 1 || schedule.period() > kMostTrees)
    throw InvalidArgument(
        fmt::format("a relay needs one tree, or a few in turn, such as chain, binary-tree, star or "
                    "double-binary-trees; {} is neither",
                    schedule.name()));
  for (Step round = 0; round < schedule.period(); ++round) check_tree(schedule, round);
}

Relay Flock::relay(const std::string& tree, Name name, const RelayOptions& options) {
  return relay(make_schedule(tree, size()), name, options);
}

Relay Flock::relay(const SchedulePtr& schedule, Name name, const RelayOptions& options) {
  if (options.missing == Missing::reference && options.patience != std::chrono::nanoseconds::max())
    throw InvalidArgument(fmt::format(
        "{}: a reference cannot replace messages that were dropped; use Missing::counts", name.text()));
  check_relay_trees(*schedule);
  auto state = std::make_shared<Relay::State>();
  state->flock = state_;
  state->topic = &state_->topic(name);
  state_->set_cursor(state->cursor, schedule);
  state->options = options;
  return Relay(state);
}

std::int64_t Relay::contributors() const {
  return state_->contributors;
}

void Relay::set_reference(ConstBuffer block) {
  state_->reference = KeptElements(block, block.memory);
}

Relay::Memory Relay::memory() {
  if (!state_->in_flight.empty()) {
    auto arriving = std::make_shared<RelaySum>(state_);
    arriving->start();
    arriving->wait_until(Deadline::max());
    arriving->raise();
  }
  const auto on_host = [](ConstBuffer elements) {
    std::vector<std::byte> bytes(elements.bytes());
    kernel::transfer({DType::uint8, bytes.data(), bytes.size()}, elements);
    return bytes;
  };
  Memory memory{{}, on_host(state_->reference.elements(DType::uint8)), state_->filled};
  for (const auto& [from, received] : state_->received)
    memory.messages.push_back(
        {from.first, from.second, received.blocks, on_host(received.elements(DType::uint8))});
  return memory;
}

void Relay::remember(const Memory& memory) {
  state_->received.clear();
  state_->in_flight.clear();
  // The restored messages go to the kind of memory of the next step's block.
  const auto kept = [](const std::vector<std::byte>& bytes) {
    return KeptElements({DType::uint8, bytes.data(), bytes.size()}, MemoryKind::host);
  };
  for (const Memory::Message& message : memory.messages)
    state_->received[{message.tree, message.neighbor}] = {{}, kept(message.sum), message.blocks};
  state_->reference = kept(memory.reference);
  state_->filled = memory.filled;
}

Piece Relay::piece_between(ConstBuffer in, Buffer out) const {
  if (in.dtype != out.dtype || in.count != out.count)
    throw InvalidArgument(fmt::format("{}: the input has {} x {}, the output {} x {}", state_->topic->text,
                                      in.count, name(in.dtype), out.count, name(out.dtype)));
  return {in, out, 0};
}

Pending Relay::start(const Piece& block) {
  State& state = *state_;
  check_memory(*state.flock->fabric, {block}, state.topic->text);
  if (state.memory.value_or(block.in.memory) != block.in.memory)
    throw InvalidArgument(fmt::format("{}: the relay's blocks are in {}, and this one in {}",
                                      state.topic->text, name(*state.memory), name(block.in.memory)));
  if (!is_floating(block.in.dtype))
    throw InvalidArgument(fmt::format("{}: {} cannot be averaged; use a floating type", state.topic->text,
                                      name(block.in.dtype)));
  if (const auto current = state.current.lock(); current && !current->ended())
    throw InvalidArgument(
        fmt::format("{}: the relay's previous step has not ended yet; wait for it first", state.topic->text));
  state.memory = block.in.memory;
  state.flock->runtime->enter();
  StepPlan plan;
  state.flock->plan_next_step(state.cursor, plan);
  auto operation = std::make_shared<RelaySum>(state_, std::move(plan), block);
  state.current = operation;
  const DeviceGuard guard(*state.flock->runtime);
  operation->start();
  return Pending(operation);
}

}  // namespace starling::flock
