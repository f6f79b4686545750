#include "starling/flock/flock_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "starling/base/error.h"
#include "starling/base/name_hash.h"
#include "starling/record/log.h"
#include "starling/topology/consistency.h"
#include "starling/topology/graph.h"
#include "starling/topology/registry.h"
#include "starling/topology/relabel.h"

namespace starling::flock {
namespace {

std::vector<Rank> ranks_from_0(Rank size) {
  std::vector<Rank> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Whether these ranks reach each other in the rounds of a period without any other rank.
bool connects(const Schedule& schedule, const std::vector<Rank>& ranks) {
  constexpr Step kEndless = 256;  // rounds to check of a schedule that does not repeat
  const auto place = [&](Rank rank) { return std::lower_bound(ranks.begin(), ranks.end(), rank); };
  std::vector<std::pair<Rank, Rank>> edges;
  Exchange exchange;
  for (Step step = 0; step < (schedule.period() > 0 ? schedule.period() : kEndless); ++step)
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      schedule.exchange(step, ranks[i], exchange);
      const auto hears = [&](Rank from) {
        const auto at = place(from);
        if (at != ranks.end() && *at == from && from != ranks[i])
          edges.emplace_back(static_cast<Rank>(at - ranks.begin()), static_cast<Rank>(i));
      };
      for (const Source& source : exchange.sources) hears(source.rank);
      for (std::int64_t k = 0; k < exchange.group.size(); ++k) hears(exchange.group[k]);
    }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return !unreachable(StoredGraph(static_cast<Rank>(ranks.size()), edges, /*directed=*/true));
}

}  // namespace

FlockState::FlockState(std::shared_ptr<Fabric> given)
    : runtime(std::make_shared<RankRuntime>(std::move(given))),
      fabric(runtime->fabric),
      mailbox(runtime->mailbox),
      members(ranks_from_0(fabric->size())),
      rank(fabric->rank()),
      identity(0),
      newcomers(fabric->admission() == nullptr ? 0 : fabric->admission()->newcomers()),
      membership(*fabric, members, identity) {
  membership.set_timeout(runtime->timeout);
  log(LogLevel::debug, fmt::format("rank {} has joined a flock of {}", rank, size()));
}

FlockState::FlockState(const FlockState& parent, std::vector<Rank> part, std::uint64_t given_identity)
    : runtime(parent.runtime),
      fabric(parent.fabric),
      mailbox(parent.mailbox),
      members(std::move(part)),
      rank(own(fabric->rank())),
      identity(given_identity),
      newcomers(0),
      membership(*fabric, members, identity),
      on_peer_failure(parent.on_peer_failure.load()) {
  membership.set_timeout(runtime->timeout);
  if (log_level() == LogLevel::debug)
    log(LogLevel::debug, fmt::format("rank {} is rank {} of a sub-flock of {} ranks", self(), rank, size()));
}

void FlockState::follow(const FlockState& before, const SchedulePtr& schedule) {
  on_peer_failure = before.on_peer_failure.load();
  allreduce_algorithm = before.allreduce_algorithm.load();
  runtime->timeout = before.runtime->timeout.load();
  runtime->send_limit = before.runtime->send_limit.load();
  runtime->bytes_sent = before.runtime->bytes_sent.load();
  {
    const std::lock_guard lock(before.mutex_);
    observe(before.observer_);
  }
  set_cursor(main, schedule);
  note_schedule_is_set(before.schedule_is_set());
}

Rank FlockState::global(Rank one, std::string_view operation) const {
  if (one < 0 || one >= size())
    throw InvalidArgument(
        fmt::format("{}: rank {} is not one of the {} ranks 0..{}", operation, one, size(), size() - 1));
  return members[static_cast<std::size_t>(one)];
}

std::uint64_t FlockState::count_flocks(const std::vector<Rank>& of) {
  const std::lock_guard lock(mutex_);
  return flocks_[of]++;
}

Rank FlockState::own(Rank global_rank) const {
  return static_cast<Rank>(std::find(members.begin(), members.end(), global_rank) - members.begin());
}

Topic& FlockState::topic(const Name& name) {
  runtime->enter();
  return mailbox.topic(name, identity);
}

void FlockState::set_cursor(ScheduleCursor& cursor, const SchedulePtr& schedule,
                            ScheduleCursor::Blocks blocks) {
  if (!schedule) throw InvalidArgument("a null pointer is no schedule: make one, or give a topology by name");
  const std::string name = schedule->name().empty() ? "the program's own schedule" : schedule->name();
  if (schedule->size() != size())
    throw InvalidArgument(
        fmt::format("{} is for {} ranks, this flock has {}", name, schedule->size(), size()));
  if (blocks == ScheduleCursor::Blocks::one && schedule->mixing() == Mixing::two_block)
    throw InvalidArgument(fmt::format(
        "{} mixes two blocks per rank, which neighbor_allreduce cannot; base(k=1) is exact with one", name));
  const std::string compared = topology::identity_of(*schedule);
  const std::uint64_t hash = hash_name(compared);
  mailbox.note_schedule(hash, schedule->name().empty() ? compared : name);
  const std::lock_guard lock(mutex_);
  cursor = {schedule, hash, 0, {}, 0, 0};
}

SchedulePtr FlockState::schedule_of(const ScheduleCursor& cursor) const {
  const std::lock_guard lock(mutex_);
  return cursor.schedule;
}

SchedulePtr FlockState::schedule_now() {
  const std::lock_guard lock(mutex_);
  const auto view = membership.at(started_);
  return view->epoch == 0 ? main.schedule : schedule_in(main, *view);
}

Step FlockState::step_of(const ScheduleCursor& cursor) const {
  const std::lock_guard lock(mutex_);
  return cursor.step;
}

// The schedule for a view. If it cannot be made for the remaining ranks, or is the program's own, the
// original is kept as long as it connects them: in every step the weights of dead sources go to the receiver
// itself.
const SchedulePtr& FlockState::schedule_in(ScheduleCursor& cursor, const View& view) {
  SchedulePtr& found = cursor.in_view[view.epoch];
  if (found) return found;
  const bool whole = size() == fabric->size() && std::is_sorted(members.begin(), members.end());
  const SchedulePtr original = whole ? cursor.schedule : relabel(cursor.schedule, members, fabric->size());
  if (view.epoch == 0) return found = original;
  const auto over_the_living = [&](const std::string& name) {
    return relabel(make_schedule(name, static_cast<Rank>(view.members.size())), view.members, fabric->size());
  };
  try {
    found = over_the_living(cursor.schedule->name());
  } catch (const InvalidArgument&) {
    const bool stays = connects(*original, view.members);
    log(LogLevel::normal,
        fmt::format("rank {}: the topology ({}) cannot be made for the {} ranks that are left, so {}", self(),
                    cursor.schedule->name().empty() ? "the program's own" : cursor.schedule->name(),
                    view.members.size(),
                    stays ? "it continues without the failed ranks"
                          : "they continue with exponential: without the failed ranks it is disconnected"));
    found = stays ? original : over_the_living(kDefaultFlockTopology);
  }
  return found;
}

void FlockState::plan_next_step(ScheduleCursor& cursor, StepPlan& plan) {
  const std::lock_guard lock(mutex_);
  const Step number = started_++;
  plan.step = cursor.step++;
  plan.schedule = cursor.hash;
  const auto view = reweighting() ? membership.start(number) : membership.first();
  plan.epoch = view->epoch;
  plan.over = schedule_in(cursor, *view);
  if (cursor.epoch != view->epoch) {
    cursor.epoch = view->epoch;
    // CECA's two blocks are exact only from the first round of a period on.
    if (cursor.schedule->mixing() == Mixing::two_block) cursor.origin = plan.step;
  }
  plan.over->exchange(plan.step - cursor.origin, self(), plan.exchange);
}

void FlockState::set_step(ScheduleCursor& cursor, Step step) {
  const std::lock_guard lock(mutex_);
  cursor.step = step;
  cursor.origin = std::min(cursor.origin, step);
}

Exchange FlockState::peek(ScheduleCursor& cursor) {
  const std::lock_guard lock(mutex_);
  const auto view = reweighting() ? membership.at(started_) : membership.first();
  const bool anew = cursor.epoch != view->epoch && cursor.schedule->mixing() == Mixing::two_block;
  const Step origin = anew ? cursor.step : cursor.origin;
  return schedule_in(cursor, *view)->exchange(cursor.step - origin, self());
}

std::string FlockState::window_names() const {
  std::vector<std::string> names;
  for (const auto& [name, window] : windows_) names.push_back(name);
  return names.empty() ? "none" : join_words(names);
}

void FlockState::check_new_window(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (windows_.contains(name))
    throw InvalidArgument(
        fmt::format("create_window: there is a window '{}' already; free it first or choose a name that is "
                    "not one of: {}",
                    name, window_names()));
}

void FlockState::add_window(const std::string& name, std::shared_ptr<Window::State> window) {
  const std::lock_guard lock(mutex_);
  windows_[name] = std::move(window);
}

std::shared_ptr<Window::State> FlockState::window(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(name);
  if (found == windows_.end())
    throw InvalidArgument(
        fmt::format("there is no window '{}' in this flock; there are: {}", name, window_names()));
  return found->second;
}

void FlockState::forget_window(const std::string& name) {
  const std::lock_guard lock(mutex_);
  windows_.erase(name);
}

void FlockState::observe(StepObserver observer) {
  const std::lock_guard lock(mutex_);
  observed_ = static_cast<bool>(observer);
  observer_ = std::move(observer);
}

void FlockState::record(const StepRecord& record) {
  StepObserver observer;
  {
    const std::lock_guard lock(mutex_);
    observer = observer_;
  }
  if (observer) observer(record);
}

}  // namespace starling::flock
