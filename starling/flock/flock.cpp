#include "starling/flock/flock.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/environment.h"
#include "starling/base/launcher_notice.h"
#include "starling/fabric/device_messages.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/flock/flock_state.h"
#include "starling/flock/reduce_rounds.h"
#include "starling/topology/hierarchical.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

// The number of ranks per machine that the user has set; 0 if none.
Rank ranks_per_machine() {
  constexpr std::int64_t kMost = 1'000'000;
  if (const auto ours = environment::kRanksPerMachine.number(1, kMost)) return static_cast<Rank>(*ours);
  return static_cast<Rank>(environment::kBluefogRanksPerMachine.number(1, kMost).value_or(0));
}

}  // namespace

Flock::Flock(std::shared_ptr<Fabric> fabric) : state_(std::make_shared<FlockState>(std::move(fabric))) {
  state_->set_cursor(state_->main, make_schedule(kDefaultFlockTopology, size()));
}

Rank Flock::rank() const {
  return state_->rank;
}
Rank Flock::size() const {
  return state_->size();
}

Rank Flock::newcomers() const {
  return state_->newcomers;
}

bool Flock::schedule_is_set() const {
  return state_->schedule_is_set();
}
SchedulePtr Flock::schedule() const {
  return state_->schedule_of(state_->main);
}
SchedulePtr Flock::current_schedule() const {
  return state_->schedule_now();
}
Step Flock::step() const {
  return state_->step_of(state_->main);
}

std::uint64_t Flock::bytes_sent() const {
  return state_->runtime->bytes_sent;
}

std::chrono::nanoseconds Flock::timeout() const {
  return state_->runtime->timeout;
}

void Flock::set_user_call(const std::string& beginning, std::shared_ptr<const UserCall> call) {
  state_->mailbox.set_user_call(beginning, std::move(call));
}

std::string Flock::described(std::string_view name) const {
  return state_->mailbox.described(name);
}

std::uint64_t Flock::send_limit() const {
  return state_->runtime->send_limit;
}

void Flock::set_allreduce(const std::string& algorithm) {
  state_->allreduce_algorithm = parse_allreduce_algorithm(algorithm);
}

OnPeerFailure Flock::on_peer_failure() const {
  return state_->on_peer_failure;
}

void Flock::continue_without(Rank lost) const {
  state_->membership.lost(lost);
}

void Flock::observe(StepObserver observer) {
  state_->observe(std::move(observer));
}

Outgoing Flock::outgoing_bytes(std::size_t bytes, MemoryKind memory) const {
  return reserve(*state_->fabric, bytes, memory);
}
std::shared_ptr<Fabric> Flock::fabric() const {
  return state_->fabric;
}

bool Flock::has_window(const std::string& name) const {
  return state_->has_window(name);
}

void Flock::set_schedule(const SchedulePtr& schedule) {
  state_->set_cursor(state_->main, schedule);
  state_->note_schedule_is_set(true);
}

void Flock::set_schedule(const std::string& spec) {
  set_schedule(make_schedule(spec, size()));
}

void Flock::on_peer_failure(OnPeerFailure policy) {
  state_->on_peer_failure = policy;
  tell_launcher(policy == OnPeerFailure::reweight ? LauncherNotice::continues_after_failure
                                                  : LauncherNotice::needs_all_ranks);
}

bool Flock::loses_messages() const {
  return fabric::loses_messages(*state_->fabric);
}

void Flock::set_send_limit(std::uint64_t bytes) {
  if (bytes == 0) throw InvalidArgument("the send limit must be more than 0 bytes");
  state_->runtime->send_limit = bytes;
}

void Flock::set_timeout(std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) throw InvalidArgument("the timeout must be more than 0");
  state_->runtime->timeout = timeout;
  state_->runtime->interrupted = false;
}

void Flock::interrupt(std::chrono::nanoseconds patience) {
  set_timeout(patience);
  state_->runtime->interrupted = true;
}

Flock::Flock(const Flock& parent, const std::vector<Rank>& global_ranks) {
  const std::uint64_t count = parent.state_->count_flocks(global_ranks);
  std::uint64_t identity = register_key(parent.state_->identity + 1, count);
  for (const Rank rank : global_ranks) identity = register_key(identity, static_cast<std::uint64_t>(rank));
  state_ = std::make_shared<FlockState>(*parent.state_, global_ranks, identity);
  state_->set_cursor(state_->main, make_schedule(kDefaultFlockTopology, size()));
}

Flock Flock::split(std::int64_t color, std::int64_t key) {
  const auto all = allgather(std::vector<std::int64_t>{color, key, rank()}, "split");
  std::vector<std::pair<std::int64_t, Rank>> chosen;
  for (std::size_t i = 0; i < all.size(); i += 3)
    if (all[i] == color && (color >= 0 || all[i + 2] == rank()))
      chosen.emplace_back(all[i + 1], static_cast<Rank>(all[i + 2]));
  std::sort(chosen.begin(), chosen.end());
  std::vector<Rank> ranks;
  for (const auto& [order, rank] : chosen) ranks.push_back(state_->global(rank, "split"));
  return {*this, ranks};
}

Flock Flock::group(const std::vector<Rank>& ranks) {
  std::vector<Rank> global_ranks;
  for (const Rank rank : ranks) {
    const Rank found = state_->global(rank, "group");
    if (std::find(global_ranks.begin(), global_ranks.end(), found) != global_ranks.end())
      throw InvalidArgument(fmt::format("group: rank {} is listed twice", rank));
    global_ranks.push_back(found);
  }
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end())
    throw InvalidArgument(
        fmt::format("group: rank {} calls it, but is not one of its ranks: {}", rank(), join_words([&] {
                      std::vector<std::string> words;
                      for (const Rank one : ranks) words.push_back(std::to_string(one));
                      return words;
                    }())));
  return {*this, global_ranks};
}

Rank Flock::local_size() const {
  const Rank given = ranks_per_machine();
  if (given == 0) {
    const Rank each = state_->fabric->ranks_per_host();
    const bool one_host = each == state_->fabric->size();
    return one_host ? size() : size() == state_->fabric->size() ? each : 1;
  }
  if (size() % given != 0)
    throw InvalidArgument(
        fmt::format("{} ranks cannot be split into machines of {} ranks each", size(), given));
  return given;
}

void Flock::set_machine_schedule(const std::string& spec) {
  set_machine_schedule(make_schedule(spec, machine_size()));
}

void Flock::set_machine_schedule(const SchedulePtr& between_machines) {
  state_->set_cursor(state_->machines, hierarchical_schedule(between_machines, local_size()));
}

View Flock::view() const {
  View view = *state_->membership.newest();
  std::erase_if(view.members, [&](Rank global_rank) { return state_->own(global_rank) == state_->size(); });
  for (Rank& member : view.members) member = state_->own(member);
  return view;
}

Pieces Flock::checked(Piece piece, Buffer out, const Name& name) {
  if (piece.in.dtype != out.dtype || piece.in.count != out.count)
    throw InvalidArgument(fmt::format("{}: the input has {} x {}, the output {} x {}", name.text(),
                                      piece.in.count, starling::name(piece.in.dtype), out.count,
                                      starling::name(out.dtype)));
  piece.out = out;
  return {piece};
}

void Flock::refuse_alias(const Name& name) {
  throw InvalidArgument(
      fmt::format("{}: the output must not be the input: their lengths differ", name.text()));
}

Pieces Flock::checked(Pieces pieces, const Name& name) {
  if (pieces.empty()) throw InvalidArgument(fmt::format("{}: the group has no tensors", name.text()));
  return pieces;
}

Pending Flock::barrier_nonblocking(Name name) {
  return operations().allreduce({{{DType::uint8, nullptr, 0}, {DType::uint8, nullptr, 0}, 0}}, Reduction::sum,
                                name);
}

}  // namespace starling::flock
