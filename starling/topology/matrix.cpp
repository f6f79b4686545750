#include "starling/topology/matrix.h"

#include <algorithm>

namespace starling::topology {

RoundMatrix::RoundMatrix(const Schedule& schedule, Step step) : n_(schedule.size()) {
  Exchange exchange;
  rows_.reserve(static_cast<std::size_t>(n_));
  for (Rank rank = 0; rank < n_; ++rank) {
    schedule.exchange(step, rank, exchange);
    sources_.insert(sources_.end(), exchange.sources.begin(), exchange.sources.end());
    rows_.push_back({exchange.self_weight, exchange.self_weight_b, sources_.size()});
    // Ranks come in ascending order, so a group's lowest member registers it for all.
    if (exchange.group.size() > 1 && exchange.group[0] == rank) {
      group_of_.resize(static_cast<std::size_t>(n_), -1);
      for (std::int64_t i = 0; i < exchange.group.size(); ++i)
        group_of_[static_cast<std::size_t>(exchange.group[i])] = static_cast<std::int32_t>(groups_.size());
      groups_.push_back(exchange.group);
    }
  }
}

const double* RoundMatrix::average_groups(const double* x, std::vector<double>& scratch, int dim) const {
  if (groups_.empty()) return x;
  const auto d = static_cast<std::size_t>(dim);
  scratch.assign(x, x + static_cast<std::size_t>(n_) * d);
  std::vector<double> mean(d);
  for (const Group& group : groups_) {
    std::fill(mean.begin(), mean.end(), 0.0);
    for (std::int64_t i = 0; i < group.size(); ++i) {
      const double* row = x + static_cast<std::size_t>(group[i]) * d;
      for (std::size_t c = 0; c < d; ++c) mean[c] += row[c];
    }
    for (double& value : mean) value /= static_cast<double>(group.size());
    for (std::int64_t i = 0; i < group.size(); ++i)
      std::copy(mean.begin(), mean.end(), scratch.begin() + static_cast<std::ptrdiff_t>(group[i]) * dim);
  }
  return scratch.data();
}

void RoundMatrix::multiply(const double* x, double* y, int dim) const {
  const double* in = average_groups(x, scratch_, dim);
  const auto d = static_cast<std::size_t>(dim);
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (dim == 1) {
      double sum = row.self * in[i];
      for (; at < row.end; ++at) sum += sources_[at].weight * in[sources_[at].rank];
      y[i] = sum;
      continue;
    }
    for (std::size_t c = 0; c < d; ++c) y[i * d + c] = row.self * in[i * d + c];
    for (; at < row.end; ++at) {
      const double weight = sources_[at].weight;
      const double* theirs = in + static_cast<std::size_t>(sources_[at].rank) * d;
      for (std::size_t c = 0; c < d; ++c) y[i * d + c] += weight * theirs[c];
    }
  }
}

void RoundMatrix::multiply_transposed(const double* x, double* y) const {
  std::vector<double> spread(rows_.size(), 0.0);
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    spread[i] += rows_[i].self * x[i];
    for (; at < rows_[i].end; ++at)
      spread[static_cast<std::size_t>(sources_[at].rank)] += sources_[at].weight * x[i];
  }
  // G is symmetric, so W^T = G S^T.
  const double* result = average_groups(spread.data(), scratch_, 1);
  std::copy(result, result + n_, y);
}

void RoundMatrix::multiply_blocks(const double* a, const double* b, double* a_out, double* b_out,
                                  int dim) const {
  const double* from_a = average_groups(a, scratch_, dim);
  const double* from_b = average_groups(b, scratch_b_, dim);
  const auto d = static_cast<std::size_t>(dim);
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    for (std::size_t c = i * d; c < (i + 1) * d; ++c) {
      a_out[c] = row.self * from_a[c];
      b_out[c] = row.self_b * from_b[c];
    }
    for (; at < row.end; ++at) {
      const Source& source = sources_[at];
      const double* theirs =
          (source.lane == Lane::a ? from_a : from_b) + static_cast<std::size_t>(source.rank) * d;
      for (std::size_t c = 0; c < d; ++c) {
        a_out[i * d + c] += source.weight * theirs[c];
        b_out[i * d + c] += source.weight_b * theirs[c];
      }
    }
  }
}

double RoundMatrix::messages() const {
  auto count = static_cast<double>(sources_.size());
  for (const Group& group : groups_) count += 2.0 * static_cast<double>(group.size() - 1);
  return count;
}

std::vector<Entry> RoundMatrix::entries(Lane into) const {
  std::vector<Entry> all;
  std::vector<Entry> row;
  const auto add = [&](Rank receiver, const Source& source) {
    const double weight = into == Lane::a ? source.weight : source.weight_b;
    const std::int32_t g = group_of_.empty() ? -1 : group_of_[static_cast<std::size_t>(source.rank)];
    if (g < 0) {
      row.push_back({receiver, source.rank, source.lane, weight});
      return;
    }
    const Group& group = groups_[static_cast<std::size_t>(g)];
    for (std::int64_t i = 0; i < group.size(); ++i)
      row.push_back({receiver, group[i], source.lane, weight / static_cast<double>(group.size())});
  };
  std::size_t at = 0;
  for (Rank i = 0; i < n_; ++i) {
    row.clear();
    add(i, {i, into, rows_[static_cast<std::size_t>(i)].self, rows_[static_cast<std::size_t>(i)].self_b});
    for (; at < rows_[static_cast<std::size_t>(i)].end; ++at) add(i, sources_[at]);
    std::stable_sort(row.begin(), row.end(), [](const Entry& left, const Entry& right) {
      return left.sender != right.sender ? left.sender < right.sender : left.lane < right.lane;
    });
    // A sender whose block arrives twice, through its group and directly, becomes one entry.
    for (const Entry& entry : row) {
      if (entry.weight == 0 && entry.sender != i) continue;
      if (!all.empty() && all.back().receiver == i && all.back().sender == entry.sender &&
          all.back().lane == entry.lane) {
        all.back().weight += entry.weight;
      } else {
        all.push_back(entry);
      }
    }
  }
  return all;
}

}  // namespace starling::topology
