#include "starling/method/requirements.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "starling/base/error.h"
#include "starling/base/spec.h"
#include "starling/topology/matrix.h"
#include "starling/topology/settable.h"

namespace starling::method {
namespace {

constexpr double kSame = 1e-12;
constexpr Step kMostRounds = 4096;   // of a period that is examined
constexpr double kSumOff = 1e-6;     // tolerance of column sums, for rounding to float32
constexpr Step kMostRows = 1 << 18;  // ranks times rounds whose columns are summed

/// A method's name, and the schedule that it should follow.
struct Asked {
  std::string method;
  const Schedule& schedule;

  [[noreturn]] void refuse(ScheduleKind kind, const std::string& why) const {
    throw InvalidArgument(
        fmt::format("{} {}; {} does not fit, use {}", method, why, schedule.name(), examples_of(kind)));
  }
};

bool is_fixed(const Schedule& schedule) {
  return !schedule.random() && schedule.period() == 1;
}

bool has_groups(const Schedule& schedule) {
  const Step rounds = std::clamp<Step>(schedule.period(), 1, kMostRounds);
  for (Step step = 0; step < rounds; ++step)
    for (const Rank rank : {Rank{0}, static_cast<Rank>(schedule.size() - 1)})
      if (schedule.exchange(step, rank).group.size() > 1) return true;
  return false;
}

bool is_symmetric(const Schedule& schedule) {
  std::vector<Entry> edges = RoundMatrix(schedule, 0).entries();
  const auto find = [&](Rank receiver, Rank sender) {
    const auto before = [](const Entry& left, const Entry& right) {
      return std::pair(left.receiver, left.sender) < std::pair(right.receiver, right.sender);
    };
    const auto found = std::lower_bound(edges.begin(), edges.end(), Entry{receiver, sender}, before);
    return found != edges.end() && found->receiver == receiver && found->sender == sender ? found->weight : 0;
  };
  return std::all_of(edges.begin(), edges.end(), [&](const Entry& edge) {
    return edge.sender <= edge.receiver || std::abs(find(edge.sender, edge.receiver) - edge.weight) < kSame;
  });
}

// Whether the schedule is the mean of all ranks and nothing else.
bool is_global_mean(const Schedule& schedule) {
  const Exchange exchange = schedule.exchange(0, 0);
  return exchange.group.size() == schedule.size() && exchange.sources.empty();
}

void require_static_symmetric(const Asked& asked) {
  const Schedule& schedule = asked.schedule;
  if (schedule.size() == 1) return;
  if (schedule.mixing() != Mixing::average || !is_fixed(schedule))
    asked.refuse(ScheduleKind::static_symmetric, "needs weights that stay the same in every step");
  if (!is_global_mean(schedule) && !is_symmetric(schedule))
    asked.refuse(ScheduleKind::static_symmetric, "needs symmetric weights");
}

void require_column_sums(const Asked& asked, bool push_sum) {
  const Schedule& schedule = asked.schedule;
  if (schedule.random() || schedule.period() < 1 || schedule.period() > kMostRows / schedule.size()) return;
  // The program sets its weights from step to step, and those of other ranks are not known here.
  if (dynamic_cast<const topology::SettableSchedule*>(&schedule) != nullptr) return;
  for (Step step = 0; step < schedule.period(); ++step) {
    std::vector<double> sums(static_cast<std::size_t>(schedule.size()), 0.0);
    for (const Entry& entry : RoundMatrix(schedule, step).entries())
      sums[static_cast<std::size_t>(entry.sender)] += entry.weight;
    for (std::size_t rank = 0; rank < sums.size(); ++rank)
      if (std::abs(sums[rank] - 1) > kSumOff)
        throw InvalidArgument(fmt::format(
            "{} needs weights whose columns sum to one, so that the sum over the ranks is preserved; {} "
            "gives rank {} a total weight of {:g} in step {}; use Metropolis weights or a regular topology "
            "such as ring or exponential, or {}weights=push",
            asked.method, schedule.name(), rank, sums[rank], step, push_sum ? "" : "push-diging with "));
  }
}

void require_static_neighbors(const Asked& asked) {
  const Schedule& schedule = asked.schedule;
  if (schedule.size() == 1) return;
  if (!is_fixed(schedule) || has_groups(schedule))
    asked.refuse(ScheduleKind::static_neighbors, "needs the same individual neighbors in every step");
}

void require_known_neighbors(const Asked& asked) {
  const Schedule& schedule = asked.schedule;
  if (schedule.random() || schedule.period() < 1 || schedule.period() > kMostRounds)
    asked.refuse(ScheduleKind::known_neighbors, "needs neighbors that are known in advance");
  // A group without sources is equivalent to single neighbors; a group followed by sources is not.
  for (Step step = 0; step < schedule.period(); ++step)
    if (const Exchange first = schedule.exchange(step, 0); first.group.size() > 1 && !first.sources.empty())
      asked.refuse(ScheduleKind::known_neighbors,
                   "needs a topology of single neighbors, without means within groups");
}

void require_both_directions(const Asked& asked) {
  const Schedule& schedule = asked.schedule;
  require_known_neighbors(asked);
  std::set<std::pair<Rank, Rank>> edges;
  for (Step step = 0; step < schedule.period(); ++step)
    for (Rank rank = 0; rank < schedule.size(); ++rank)
      for (const Source& source : schedule.exchange(step, rank).sources) edges.insert({rank, source.rank});
  for (const auto& [to, from] : edges)
    if (!edges.contains({from, to}))
      asked.refuse(ScheduleKind::both_directions, "needs edges in both directions");
}

void require_pairs(const Asked& asked) {
  const Schedule& schedule = asked.schedule;
  const Step rounds = std::clamp<Step>(schedule.period(), 1, 64);
  Exchange exchange;
  for (Step step = 0; step < rounds; ++step)
    for (Rank rank = 0; rank < std::min<Rank>(schedule.size(), 1024); ++rank) {
      schedule.exchange(step, rank, exchange);
      const bool pair = exchange.sources.size() == 1 && exchange.destinations.size() == 1 &&
                        exchange.sources[0].rank == exchange.destinations[0].rank;
      const bool alone = exchange.sources.empty() && exchange.destinations.empty();
      const bool group_of_two = exchange.group.size() == 2 && alone;
      if (group_of_two || (exchange.group.size() <= 1 && (pair || alone))) continue;
      asked.refuse(ScheduleKind::pairs, "averages with one other rank at a time");
    }
}

// A group without sources is equivalent to single neighbors; a group followed by sources is not.
void require_single_neighbors(const Asked& asked) {
  const Exchange first = asked.schedule.exchange(0, 0);
  if (first.group.size() > 1 && !first.sources.empty())
    throw InvalidArgument(
        fmt::format("{} sends to single neighbors; {} takes means within groups as well: use {}",
                    asked.method, asked.schedule.name(), examples_of(ScheduleKind::single_neighbors)));
}

void require_ring(const Asked& asked) {
  if (asked.schedule.name().rfind("ring", 0) != 0)
    throw InvalidArgument(fmt::format("{} runs on ring, not on {}; choco compresses on any static graph",
                                      asked.method, asked.schedule.name()));
}

void check_mixing(const MethodRequirements& needs, const std::string& spec, const Schedule& schedule) {
  if (schedule.mixing() == Mixing::two_block && !needs.two_block_schedules)
    throw InvalidArgument(fmt::format("{} mixes two blocks per rank, which only dsgd-atc can; with {} use {}",
                                      schedule.name(), spec, examples_of(needs.schedule)));
  if (schedule.mixing() == Mixing::push_sum && !needs.push_sum_schedules)
    throw InvalidArgument(
        fmt::format("{} only keeps sums, which needs push-sum, push-diging or async-push-sum; with {} use {}",
                    schedule.name(), spec, examples_of(needs.schedule)));
}

}  // namespace

std::string describe(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::none:
      return "no topology";
    case ScheduleKind::any:
      return "any topology";
    case ScheduleKind::static_symmetric:
      return "static symmetric weights";
    case ScheduleKind::static_neighbors:
      return "static neighbors, no groups";
    case ScheduleKind::known_neighbors:
      return "neighbors not drawn at random";
    case ScheduleKind::single_neighbors:
      return "single neighbors, no groups";
    case ScheduleKind::both_directions:
      return "edges in both directions";
    case ScheduleKind::pairs:
      return "one partner per step";
    case ScheduleKind::ring:
      return "ring";
    case ScheduleKind::tree:
      return "a tree";
  }
  return {};
}

std::string examples_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::none:
      return "any";
    case ScheduleKind::any:
      return "ring, exponential or one-peer-exponential";
    case ScheduleKind::static_symmetric:
      return "ring, star or another static symmetric topology, or the method gradient-tracking";
    case ScheduleKind::static_neighbors:
      return "ring, torus, exponential or another static graph";
    case ScheduleKind::known_neighbors:
      return "ring, exponential, one-peer-exponential or complete";
    case ScheduleKind::single_neighbors:
      return "ring, exponential or complete";
    case ScheduleKind::both_directions:
      return "ring, torus, u-equistatic or complete";
    case ScheduleKind::pairs:
      return "random-matching or base(k=1)";
    case ScheduleKind::ring:
      return "ring";
    case ScheduleKind::tree:
      return "chain, binary-tree, star or double-binary-trees";
  }
  return {};
}

std::string topology_text(const MethodRequirements& needs) {
  std::string kind = describe(needs.schedule);
  if (!needs.column_sums) return kind;
  const std::string columns = "weights whose columns sum to one";
  return needs.schedule == ScheduleKind::any ? columns : kind + ", " + columns;
}

std::string optimizer_text(const MethodRequirements& needs) {
  if (needs.optimizer.empty()) return {};
  return needs.optimizer == "sgd" ? "SGD without momentum" : "Adam or AdamW (without amsgrad)";
}

std::vector<std::string> describe(const MethodRequirements& needs) {
  std::vector<std::string> phrases = {topology_text(needs)};
  if (needs.push_sum_schedules) phrases.front() += " (also of push-sum weights)";
  if (needs.two_block_schedules) phrases.front() += " (also of two blocks)";
  if (!needs.optimizer.empty()) phrases.push_back(optimizer_text(needs));
  if (!needs.exact_messages_because.empty()) phrases.emplace_back("exact messages");
  if (!needs.no_int8_because.empty()) phrases.emplace_back("no int8 messages");
  if (!needs.no_losses_because.empty()) phrases.emplace_back("no lost messages");
  if (needs.one_sided) phrases.emplace_back("windows");
  if (needs.asynchronous) phrases.emplace_back("asynchronous");
  return phrases;
}

void check_schedule(const MethodRequirements& needs, const std::string& spec, const Schedule& schedule) {
  const Asked asked{spec.empty() ? "the method" : parse_spec(spec).word, schedule};
  switch (needs.schedule) {
    case ScheduleKind::static_symmetric:
      return require_static_symmetric(asked);
    case ScheduleKind::ring:
      return require_ring(asked);
    default:
      check_mixing(needs, spec, schedule);
  }
  if (needs.column_sums) require_column_sums(asked, needs.push_sum_schedules);
  switch (needs.schedule) {
    case ScheduleKind::static_neighbors:
      return require_static_neighbors(asked);
    case ScheduleKind::known_neighbors:
      return require_known_neighbors(asked);
    case ScheduleKind::single_neighbors:
      return require_single_neighbors(asked);
    case ScheduleKind::both_directions:
      return require_both_directions(asked);
    case ScheduleKind::pairs:
      return require_pairs(asked);
    default:
      return;  // the relay checks its tree itself
  }
}

}  // namespace starling::method
