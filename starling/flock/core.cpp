#include "starling/flock/core.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "starling/base/error.h"
#include "starling/record/log.h"
#include "starling/topology/graph.h"
#include "starling/topology/registry.h"
#include "starling/topology/relabel.h"

namespace starling {
namespace {

std::vector<Rank> everybody(Rank size) {
  std::vector<Rank> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Whether these ranks reach each other in the rounds of a period, without anybody else.
bool connects(const Schedule& schedule, const std::vector<Rank>& ranks) {
  constexpr Step kEndless = 256;  // rounds to look at of a schedule that does not repeat
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

Core::Core(std::shared_ptr<Fabric> given)
    : hub(std::make_shared<Hub>(std::move(given))),
      fabric(hub->fabric),
      mailbox(hub->mailbox),
      members(everybody(fabric->size())),
      rank(fabric->rank()),
      identity(0),
      newcomers(fabric->door() == nullptr ? 0 : fabric->door()->newcomers()),
      membership(*fabric, members, identity) {
  membership.set_timeout(hub->timeout);
  log(LogLevel::debug, fmt::format("rank {} has joined a flock of {}", rank, size()));
}

Core::Core(const Core& parent, std::vector<Rank> part, std::uint64_t given_identity)
    : hub(parent.hub),
      fabric(parent.fabric),
      mailbox(parent.mailbox),
      members(std::move(part)),
      rank(own(fabric->rank())),
      identity(given_identity),
      newcomers(0),
      membership(*fabric, members, identity),
      on_peer_failure(parent.on_peer_failure.load()) {
  membership.set_timeout(hub->timeout);
  if (log_level() == LogLevel::debug)
    log(LogLevel::debug, fmt::format("rank {} is rank {} of a part of {} ranks", self(), rank, size()));
}

void Core::follow(const Core& before, const SchedulePtr& schedule) {
  on_peer_failure = before.on_peer_failure.load();
  allreduce_way = before.allreduce_way.load();
  hub->timeout = before.hub->timeout.load();
  hub->send_limit = before.hub->send_limit.load();
  hub->bytes_sent = before.hub->bytes_sent.load();
  {
    const std::lock_guard lock(before.mutex_);
    observe(before.observer_);
  }
  set_course(main, schedule);
  note_schedule_is_set(before.schedule_is_set());
}

Rank Core::global(Rank one, std::string_view operation) const {
  if (one < 0 || one >= size())
    throw InvalidArgument(
        fmt::format("{}: rank {} is not one of the {} ranks 0..{}", operation, one, size(), size() - 1));
  return members[static_cast<std::size_t>(one)];
}

std::uint64_t Core::count_flocks(const std::vector<Rank>& of) {
  const std::lock_guard lock(mutex_);
  return flocks_[of]++;
}

Rank Core::own(Rank global_rank) const {
  return static_cast<Rank>(std::find(members.begin(), members.end(), global_rank) - members.begin());
}

Topic& Core::topic(const Name& name) {
  hub->enter();
  return mailbox.topic(name, identity);
}

void Core::set_course(Course& course, const SchedulePtr& schedule, Course::Blocks blocks) {
  if (schedule->size() != size())
    throw InvalidArgument(
        fmt::format("{} is for {} ranks, this flock has {}", schedule->name(), schedule->size(), size()));
  if (blocks == Course::Blocks::one && schedule->mixing() == Mixing::two_block)
    throw InvalidArgument(fmt::format(
        "{} mixes two blocks per rank, which neighbor_allreduce cannot; base(k=1) is exact with one",
        schedule->name()));
  const std::lock_guard lock(mutex_);
  course = {schedule, hash_name(schedule->name()), 0, {}, 0, 0};
}

SchedulePtr Core::schedule_of(const Course& course) const {
  const std::lock_guard lock(mutex_);
  return course.schedule;
}

SchedulePtr Core::schedule_now() {
  const std::lock_guard lock(mutex_);
  const auto view = membership.at(started_);
  return view->epoch == 0 ? main.schedule : schedule_in(main, *view);
}

Step Core::step_of(const Course& course) const {
  const std::lock_guard lock(mutex_);
  return course.step;
}

// A schedule that cannot be had for so few ranks, or is a program's own, stays as it was while it connects
// them: what is missing goes to the receiver itself in every step.
const SchedulePtr& Core::schedule_in(Course& course, const View& view) {
  SchedulePtr& found = course.in_view[view.epoch];
  if (found) return found;
  const bool whole = size() == fabric->size() && std::is_sorted(members.begin(), members.end());
  const SchedulePtr original = whole ? course.schedule : relabel(course.schedule, members, fabric->size());
  if (view.epoch == 0) return found = original;
  const auto over_the_living = [&](const std::string& name) {
    return relabel(make_schedule(name, static_cast<Rank>(view.members.size())), view.members, fabric->size());
  };
  try {
    found = over_the_living(course.schedule->name());
  } catch (const InvalidArgument&) {
    const bool stays = connects(*original, view.members);
    log(LogLevel::normal,
        fmt::format(
            "rank {}: its topology ({}) cannot be made for the {} ranks that are left, {}", self(),
            course.schedule->name().empty() ? "the program's own" : course.schedule->name(),
            view.members.size(),
            stays ? "and goes on without the others" : "who lost their connection: exponential from now on"));
    found = stays ? original : over_the_living("exponential");
  }
  return found;
}

void Core::next_turn(Course& course, Turn& turn) {
  const std::lock_guard lock(mutex_);
  const Step number = started_++;
  turn.step = course.step++;
  turn.schedule = course.hash;
  const auto view = reweighting() ? membership.start(number) : membership.first();
  turn.epoch = view->epoch;
  turn.over = schedule_in(course, *view);
  if (course.epoch != view->epoch) {
    course.epoch = view->epoch;
    // The two blocks of CECA are exact from the first round of a period only.
    if (course.schedule->mixing() == Mixing::two_block) course.origin = turn.step;
  }
  turn.over->exchange(turn.step - course.origin, self(), turn.exchange);
}

void Core::set_step(Course& course, Step step) {
  const std::lock_guard lock(mutex_);
  course.step = step;
  course.origin = std::min(course.origin, step);
}

Exchange Core::peek(Course& course) {
  const std::lock_guard lock(mutex_);
  const auto view = reweighting() ? membership.at(started_) : membership.first();
  const bool anew = course.epoch != view->epoch && course.schedule->mixing() == Mixing::two_block;
  const Step origin = anew ? course.step : course.origin;
  return schedule_in(course, *view)->exchange(course.step - origin, self());
}

std::string Core::window_names() const {
  std::vector<std::string> names;
  for (const auto& [name, window] : windows_) names.push_back(name);
  return names.empty() ? "none" : join_words(names);
}

void Core::check_new_window(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (windows_.contains(name))
    throw InvalidArgument(fmt::format(
        "win_create: there is a window '{}' already; free it first or choose a name that is not one of: {}",
        name, window_names()));
}

void Core::add_window(const std::string& name, std::shared_ptr<Window::State> window) {
  const std::lock_guard lock(mutex_);
  windows_[name] = std::move(window);
}

std::shared_ptr<Window::State> Core::window(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = windows_.find(name);
  if (found == windows_.end())
    throw InvalidArgument(
        fmt::format("there is no window '{}' in this flock; there are: {}", name, window_names()));
  return found->second;
}

void Core::forget_window(const std::string& name) {
  const std::lock_guard lock(mutex_);
  windows_.erase(name);
}

void Core::observe(StepObserver observer) {
  const std::lock_guard lock(mutex_);
  observed_ = static_cast<bool>(observer);
  observer_ = std::move(observer);
}

void Core::record(const StepRecord& record) {
  StepObserver observer;
  {
    const std::lock_guard lock(mutex_);
    observer = observer_;
  }
  if (observer) observer(record);
}

}  // namespace starling
