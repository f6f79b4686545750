#include "topology/schedule_checks.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <tuple>

#include "starling/topology/matrix.h"

namespace starling::topology {
namespace {

using Edge = std::tuple<Rank, Rank, Lane>;  // receiver, sender, block

std::vector<Rank> members_of(const Group& group) {
  std::vector<Rank> members;
  for (std::int64_t i = 0; i < group.size(); ++i) members.push_back(group[i]);
  return members;
}

std::string repeated(const std::vector<Edge>& edges, const char* where) {
  const auto twice = std::adjacent_find(edges.begin(), edges.end());
  if (twice == edges.end()) return "";
  return fmt::format("rank {} has {} twice in the {}", std::get<0>(*twice), std::get<1>(*twice), where);
}

std::string group_problem(const std::vector<Exchange>& exchanges, Rank rank) {
  const Rank n = static_cast<Rank>(exchanges.size());
  const std::vector<Rank> members = members_of(exchanges[static_cast<std::size_t>(rank)].group);
  std::vector<Rank> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  if (!std::binary_search(sorted.begin(), sorted.end(), rank)) {
    return fmt::format("rank {} is not in its own group", rank);
  }
  if (rank != sorted.front()) return "";  // checked once, for the first member
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() || sorted.front() < 0 ||
      sorted.back() >= n) {
    return fmt::format("the group of rank {} repeats a member or leaves the ranks", rank);
  }
  for (const Rank member : members) {
    if (members_of(exchanges[static_cast<std::size_t>(member)].group) != members) {
      return fmt::format("ranks {} and {} disagree on their group", rank, member);
    }
  }
  return "";
}

/// Adds `weight` times the value of `rank` after its own group's mean.
void add_share(Eigen::MatrixXd& matrix, const std::vector<Exchange>& exchanges, Rank receiver, Rank rank,
               double weight) {
  const Group& group = exchanges[static_cast<std::size_t>(rank)].group;
  if (group.size() == 0) {
    matrix(receiver, rank) += weight;
    return;
  }
  for (std::int64_t i = 0; i < group.size(); ++i) {
    matrix(receiver, group[i]) += weight / static_cast<double>(group.size());
  }
}

std::vector<double> random_values(Rank n, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values) value = normal(generator);
  return values;
}

std::vector<double> group_means(const std::vector<Exchange>& exchanges, const std::vector<double>& values) {
  std::vector<double> means = values;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const Group& group = exchanges[rank].group;
    if (group.size() == 0 || group[0] != static_cast<Rank>(rank)) continue;
    double sum = 0;
    for (std::int64_t i = 0; i < group.size(); ++i) sum += values[static_cast<std::size_t>(group[i])];
    for (std::int64_t i = 0; i < group.size(); ++i) {
      means[static_cast<std::size_t>(group[i])] = sum / static_cast<double>(group.size());
    }
  }
  return means;
}

bool hears(const Exchange& exchange, Rank rank, Lane lane) {
  return std::any_of(exchange.sources.begin(), exchange.sources.end(),
                     [&](const Source& source) { return source.rank == rank && source.lane == lane; });
}

bool tells(const Exchange& exchange, Rank rank, Lane lane) {
  return std::any_of(exchange.destinations.begin(), exchange.destinations.end(),
                     [&](const Destination& to) { return to.rank == rank && to.lane == lane; });
}

bool same_group(const Group& left, const Group& right) {
  const std::int64_t size = left.size();
  return right.size() == size && (size == 0 || (left[0] == right[0] && left[size - 1] == right[size - 1] &&
                                                left[size / 2] == right[size / 2]));
}

}  // namespace

std::vector<Exchange> all_exchanges(const Schedule& schedule, Step step) {
  std::vector<Exchange> exchanges(static_cast<std::size_t>(schedule.size()));
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    schedule.exchange(step, rank, exchanges[static_cast<std::size_t>(rank)]);
  }
  return exchanges;
}

std::string inconsistency(const std::vector<Exchange>& exchanges) {
  const Rank n = static_cast<Rank>(exchanges.size());
  std::vector<Edge> heard;
  std::vector<Edge> told;
  for (Rank rank = 0; rank < n; ++rank) {
    const Exchange& exchange = exchanges[static_cast<std::size_t>(rank)];
    for (const Source& source : exchange.sources) {
      if (source.rank == rank) return fmt::format("rank {} is its own source", rank);
      if (source.rank < 0 || source.rank >= n)
        return fmt::format("rank {} has the source {}", rank, source.rank);
      heard.emplace_back(rank, source.rank, source.lane);
    }
    for (const Destination& to : exchange.destinations) told.emplace_back(to.rank, rank, to.lane);
    if (exchange.group.size() == 0) continue;
    if (const std::string problem = group_problem(exchanges, rank); !problem.empty()) return problem;
  }
  std::sort(heard.begin(), heard.end());
  std::sort(told.begin(), told.end());
  if (const std::string problem = repeated(heard, "sources"); !problem.empty()) return problem;
  if (const std::string problem = repeated(told, "destinations"); !problem.empty()) return problem;
  if (heard == told) return "";
  const auto [left, right] = std::mismatch(heard.begin(), heard.end(), told.begin(), told.end());
  const bool source_only = right == told.end() || (left != heard.end() && *left < *right);
  const Edge& edge = source_only ? *left : *right;
  return fmt::format("rank {} from {}: only in the {}", std::get<0>(edge), std::get<1>(edge),
                     source_only ? "sources" : "destinations");
}

reference::DenseRound multiply_out(const std::vector<Exchange>& exchanges) {
  const auto n = static_cast<Eigen::Index>(exchanges.size());
  const Eigen::MatrixXd zero = Eigen::MatrixXd::Zero(n, n);
  reference::DenseRound round{zero, zero, zero, zero};
  for (Rank rank = 0; rank < n; ++rank) {
    const Exchange& exchange = exchanges[static_cast<std::size_t>(rank)];
    add_share(round.a, exchanges, rank, rank, exchange.self_weight);
    add_share(round.b, exchanges, rank, rank, exchange.self_weight_b);
    for (const Source& source : exchange.sources) {
      const bool a = source.lane == Lane::a;
      add_share(a ? round.a : round.a_from_b, exchanges, rank, source.rank, source.weight);
      add_share(a ? round.b_from_a : round.b, exchanges, rank, source.rank, source.weight_b);
    }
  }
  return round;
}

reference::DenseRound from_entries(const Schedule& schedule, Step step, std::string& problem) {
  const Rank n = schedule.size();
  reference::DenseRound round{Eigen::MatrixXd::Zero(n, n), Eigen::MatrixXd::Zero(n, n), {}, {}};
  const RoundMatrix matrix(schedule, step);
  if (matrix.size() != n) problem = "the matrix has another size";
  std::vector<bool> diagonal(static_cast<std::size_t>(n), false);
  std::tuple<Rank, Rank, Lane> last{-1, -1, Lane::a};
  for (const Entry& entry : matrix.entries()) {
    const std::tuple<Rank, Rank, Lane> here{entry.receiver, entry.sender, entry.lane};
    if (here <= last) problem = fmt::format("entry ({}, {}) is out of order", entry.receiver, entry.sender);
    if (entry.receiver == entry.sender) {
      diagonal[static_cast<std::size_t>(entry.receiver)] = true;
    } else if (entry.weight == 0) {
      problem = fmt::format("entry ({}, {}) is zero", entry.receiver, entry.sender);
    }
    (entry.lane == Lane::a ? round.a : round.a_from_b)(entry.receiver, entry.sender) += entry.weight;
    last = here;
  }
  if (std::find(diagonal.begin(), diagonal.end(), false) != diagonal.end())
    problem = "a diagonal entry is missing";
  return round;
}

std::string difference(const Eigen::MatrixXd& actual, const Eigen::MatrixXd& expected, double tolerance) {
  if (actual.rows() != expected.rows() || actual.cols() != expected.cols()) return "the sizes differ";
  if (actual.size() == 0) return "";
  Eigen::Index row = 0;
  Eigen::Index column = 0;
  if ((actual - expected).cwiseAbs().maxCoeff(&row, &column) <= tolerance) return "";
  return fmt::format("receiver {}, sender {}: {} instead of {}", row, column, actual(row, column),
                     expected(row, column));
}

int largest_degree(const reference::DenseRound& round, bool columns) {
  Eigen::MatrixXd links = round.a.cwiseAbs();
  if (round.two_block()) links += round.a_from_b.cwiseAbs();
  links.diagonal().setZero();
  const Eigen::MatrixXi heard = (links.array() > 0).cast<int>();
  return columns ? heard.colwise().sum().maxCoeff() : heard.rowwise().sum().maxCoeff();
}

Averaging::Averaging(const Schedule& of, std::uint64_t seed)
    : schedule(of), b(static_cast<std::size_t>(of.size()), 0), p(static_cast<std::size_t>(of.size()), 1) {
  restart(seed);
}

void Averaging::restart(std::uint64_t seed) {
  a = random_values(schedule.size(), seed);
  mean = 0;
  for (const double value : a) mean += value / static_cast<double>(a.size());
}

void Averaging::run(Step first, Step count) {
  for (Step step = first; step < first + count; ++step) {
    const std::vector<Exchange> exchanges = all_exchanges(schedule, step);
    const std::vector<double> old_a = group_means(exchanges, a);
    const std::vector<double> old_b = group_means(exchanges, b);
    const std::vector<double> old_p = group_means(exchanges, p);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = exchanges[i].self_weight * old_a[i];
      b[i] = exchanges[i].self_weight_b * old_b[i];
      p[i] = exchanges[i].self_weight * old_p[i];
      for (const Source& source : exchanges[i].sources) {
        const auto j = static_cast<std::size_t>(source.rank);
        const double sent = source.lane == Lane::a ? old_a[j] : old_b[j];
        a[i] += source.weight * sent;
        b[i] += source.weight_b * sent;
        p[i] += source.weight * old_p[j];
      }
    }
  }
}

double Averaging::error() const {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double estimate = schedule.mixing() == Mixing::push_sum ? a[i] / p[i] : a[i];
    largest = std::max(largest, std::abs(estimate - mean));
  }
  return largest;
}

double error_after(const Schedule& schedule, Step first, Step count) {
  Averaging averaging(schedule, 7);
  averaging.run(first, count);
  return averaging.error();
}

void expect_consistent_at(const Schedule& schedule, const std::vector<Step>& steps,
                          const std::vector<Rank>& ranks) {
  for (const Step step : steps) {
    for (const Rank rank : ranks) {
      SCOPED_TRACE(fmt::format("{} n={} step={} rank={}", schedule.name(), schedule.size(), step, rank));
      const Exchange exchange = schedule.exchange(step, rank);
      for (const Source& source : exchange.sources) {
        EXPECT_NE(source.rank, rank);
        EXPECT_TRUE(tells(schedule.exchange(step, source.rank), rank, source.lane))
            << "source " << source.rank;
      }
      for (const Destination& to : exchange.destinations) {
        EXPECT_NE(to.rank, rank);
        EXPECT_TRUE(hears(schedule.exchange(step, to.rank), rank, to.lane)) << "destination " << to.rank;
      }
      const std::int64_t size = exchange.group.size();
      for (const std::int64_t i : {std::int64_t{0}, size / 2, size - 1}) {
        if (size == 0) break;
        EXPECT_TRUE(same_group(schedule.exchange(step, exchange.group[i]).group, exchange.group));
      }
    }
  }
}

}  // namespace starling::topology
