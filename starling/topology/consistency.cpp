#include "starling/topology/consistency.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <span>
#include <tuple>
#include <vector>

#include "starling/base/checksum.h"
#include "starling/base/error.h"

namespace starling::topology {
namespace {

constexpr double kSumOff = 1e-6;             // tolerance, for rounding to float32
constexpr Step kMostSteps = 64;              // of a schedule without a period, or of a long one
constexpr std::int64_t kMostRows = 1 << 16;  // ranks times steps, beyond the first step

using Edge = std::tuple<Rank, Rank, Lane>;  // sender, receiver, block

void check_edges(const Schedule& schedule, Step step, const std::string& name) {
  std::vector<Edge> sent;
  std::vector<Edge> received;
  Exchange exchange;
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    schedule.exchange(step, rank, exchange);
    const auto check = [&](Rank other) {
      if (other < 0 || other >= schedule.size() || other == rank)
        throw InvalidArgument(
            fmt::format("{}: rank {} exchanges with rank {} in step {}; its neighbors are "
                        "other ranks of 0..{}",
                        name, rank, other, step, schedule.size() - 1));
    };
    for (const Source& source : exchange.sources) {
      check(source.rank);
      received.emplace_back(source.rank, rank, source.lane);
    }
    for (const Destination& to : exchange.destinations) {
      check(to.rank);
      sent.emplace_back(rank, to.rank, to.lane);
    }
  }
  std::sort(sent.begin(), sent.end());
  std::sort(received.begin(), received.end());
  const auto [send, receive] = std::mismatch(sent.begin(), sent.end(), received.begin(), received.end());
  if (send == sent.end() && receive == received.end()) return;
  const bool unheard = receive == received.end() || (send != sent.end() && *send < *receive);
  const auto [from, to, lane] = unheard ? *send : *receive;
  throw InvalidArgument(
      unheard
          ? fmt::format("{}: in step {} rank {} sends to rank {}, which does not receive from it; add the "
                        "source {} to rank {} or remove the destination",
                        name, step, from, to, from, to)
          : fmt::format("{}: in step {} rank {} receives from rank {}, which does not send to it; add the "
                        "destination {} to rank {} or remove the source",
                        name, step, to, from, to, from));
}

void check_sums(const Schedule& schedule, Step step, const std::string& name) {
  if (schedule.mixing() == Mixing::two_block) return;
  const bool push = schedule.mixing() == Mixing::push_sum;
  std::vector<double> sums(static_cast<std::size_t>(schedule.size()), 0.0);
  Exchange exchange;
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    schedule.exchange(step, rank, exchange);
    sums[static_cast<std::size_t>(rank)] += exchange.self_weight;
    for (const Source& source : exchange.sources)
      sums[static_cast<std::size_t>(push ? source.rank : rank)] += source.weight;
  }
  for (std::size_t rank = 0; rank < sums.size(); ++rank)
    if (!(std::abs(sums[rank] - 1) <= kSumOff))
      throw InvalidArgument(fmt::format(
          fmt::runtime(
              push
                  ? "{}: in step {} rank {} gives away {:g} of its value in all, not 1; the weights that its "
                    "destinations and itself give to it must sum to one"
                  : "{}: in step {} the weights of rank {} sum to {:g}, not to 1; the self weight and the "
                    "sources' "
                    "weights must sum to one"),
          name, step, rank, sums[rank]));
}

Step steps_to_check(const Schedule& schedule) {
  const bool periodic = !schedule.random() && schedule.period() >= 1;
  const Step steps = periodic ? std::min(schedule.period(), kMostSteps) : kMostSteps;
  return std::clamp<Step>((kMostRows - 1) / std::max<Rank>(schedule.size(), 1) + 1, 1, steps);
}

/// Adds numbers to a checksum.
class Digest {
 public:
  template <typename... Number>
  void add(const Number&... numbers) {
    (sum_.add(std::as_bytes(std::span(&numbers, 1))), ...);
  }
  std::uint64_t value() const { return sum_.value(); }

 private:
  Checksum sum_;
};

void add_exchange(const Exchange& exchange, Digest& digest) {
  digest.add(exchange.self_weight, exchange.self_weight_b, exchange.group.size());
  for (std::int64_t i = 0; i < exchange.group.size(); ++i) digest.add(exchange.group[i]);
  digest.add(exchange.sources.size());
  for (const Source& source : exchange.sources)
    digest.add(source.rank, source.lane, source.weight, source.weight_b);
  digest.add(exchange.destinations.size());
  for (const Destination& to : exchange.destinations) digest.add(to.rank, to.lane, to.scale);
}

}  // namespace

void check_consistent(const Schedule& schedule, const std::string& name) {
  for (Step step = 0; step < steps_to_check(schedule); ++step) {
    check_edges(schedule, step, name);
    check_sums(schedule, step, name);
  }
}

std::string identity_of(const Schedule& schedule) {
  if (!schedule.canonical().empty()) return schedule.canonical();
  check_consistent(schedule, "the program's own schedule");
  Digest digest;
  digest.add(schedule.size(), schedule.period(), schedule.mixing());
  Exchange exchange;
  for (Step step = 0; step < steps_to_check(schedule); ++step)
    for (Rank rank = 0; rank < schedule.size(); ++rank) {
      schedule.exchange(step, rank, exchange);
      add_exchange(exchange, digest);
    }
  return "own schedule " + checksum_text(digest.value());
}

}  // namespace starling::topology
