#include "starling/topology/mixer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::topology {
namespace {

constexpr std::size_t kTile = 1024;              // values: a tile of the output stays in the L1 cache
constexpr std::int64_t kCacheLimit = 4'000'000;  // ranks times rounds whose matrices are kept

/// Whether a row's weights make an average. It is then computed from differences like the kernels of
/// kernel/average.h, so that equal values stay equal bit for bit and the mean does not drift.
bool is_average(const Exchange& row) {
  double sum = row.self_weight;
  bool positive = row.self_weight > 0;
  for (const Source& source : row.sources) {
    sum += source.weight;
    positive = positive && source.weight > 0;
  }
  return positive && std::abs(sum - 1) <= 0x1p-53 * static_cast<double>(row.sources.size() + 1);
}

// out[i] = from[i] - weight * (self[i] - self[(i + offset) mod n]) for i in [begin, end).
void pull_rotated(double* out, const double* from, const double* self, double weight, std::size_t n,
                  std::size_t offset, std::size_t begin, std::size_t end) {
  const std::size_t wrap = n - offset;
  const std::size_t middle = std::clamp(wrap, begin, end);
  for (std::size_t i = begin; i < middle; ++i) out[i] = from[i] - weight * (self[i] - self[i + offset]);
  for (std::size_t i = middle; i < end; ++i) out[i] = from[i] - weight * (self[i] - self[i - wrap]);
}

// out += weight * in, over a rotation: out[i] += weight * in[(i + offset) mod n] for i in [begin, end).
void add_rotated(double* out, const double* in, double weight, std::size_t n, std::size_t offset,
                 std::size_t begin, std::size_t end) {
  const std::size_t wrap = n - offset;
  const std::size_t middle = std::clamp(wrap, begin, end);
  for (std::size_t i = begin; i < middle; ++i) out[i] += weight * in[i + offset];
  for (std::size_t i = middle; i < end; ++i) out[i] += weight * in[i - wrap];
}

// out = own * self + weight * rotated in one pass, for one-peer schedules.
void mix_one(double* out, const double* self, double own, const double* in, double weight, std::size_t n,
             std::size_t offset) {
  const std::size_t wrap = n - offset;
  for (std::size_t i = 0; i < wrap; ++i) out[i] = own * self[i] + weight * in[i + offset];
  for (std::size_t i = wrap; i < n; ++i) out[i] = own * self[i] + weight * in[i - wrap];
}

}  // namespace

Mixer::Mixer(SchedulePtr schedule, int dim)
    : schedule_(std::move(schedule)),
      circulant_(dynamic_cast<const Circulant*>(schedule_.get())),
      matching_(dynamic_cast<const Matching*>(schedule_.get())),
      mixing_(schedule_->mixing()),
      dim_(dim) {
  fill_cache();
  if (mixing_ != Mixing::two_block) return;
  // On a circulant schedule rank 0 represents all ranks; elsewhere it may be an idle one.
  sends_b_ = circulant_ == nullptr;
  Exchange exchange;
  for (Step t = 0; t < schedule_->period() && !sends_b_; ++t) {
    schedule_->exchange(t, 0, exchange);
    for (const Source& source : exchange.sources) sends_b_ = sends_b_ || source.lane == Lane::b;
  }
}

void Mixer::start(std::span<const double> values, Step first) {
  const auto expected = static_cast<std::size_t>(schedule_->size()) * static_cast<std::size_t>(dim_);
  if (values.size() != expected)
    throw InvalidArgument(
        fmt::format("{} values for {} ranks of {} each", values.size(), schedule_->size(), dim_));
  x_.assign(values.begin(), values.end());
  x_next_.resize(x_.size());
  step_ = first;
  if (sends_b_) {
    b_.assign(x_.size(), 0.0);
    b_next_.resize(x_.size());
  }
  if (mixing_ == Mixing::push_sum) {
    p_.assign(static_cast<std::size_t>(schedule_->size()), 1.0);
    p_next_.resize(p_.size());
    estimate_ = x_;
  }
}

void Mixer::advance() {
  if (circulant_ != nullptr) {
    advance_circulant(*circulant_);
  } else if (matching_ != nullptr) {
    advance_matching(*matching_);
  } else {
    advance_general();
  }
  ++step_;
}

void Mixer::advance_circulant(const Circulant& schedule) {
  schedule.round(step_, row_);
  const std::size_t n = x_.size();
  const auto offset = [&](const Source& source) {
    return static_cast<std::size_t>(source.rank) * static_cast<std::size_t>(dim_);
  };
  messages_ = static_cast<double>(schedule.size()) * static_cast<double>(row_.sources.size());
  if (!sends_b_ && !row_.sources.empty() && is_average(row_)) {
    for (std::size_t begin = 0; begin < n; begin += kTile) {
      const std::size_t end = std::min(n, begin + kTile);
      const double* from = x_.data();
      for (const Source& source : row_.sources) {
        pull_rotated(x_next_.data(), from, x_.data(), source.weight, n, offset(source), begin, end);
        from = x_next_.data();
      }
    }
  } else if (row_.sources.size() == 1) {
    const Source& source = row_.sources[0];
    const double* received = source.lane == Lane::a ? x_.data() : b_.data();
    mix_one(x_next_.data(), x_.data(), row_.self_weight, received, source.weight, n, offset(source));
    if (sends_b_)
      mix_one(b_next_.data(), b_.data(), row_.self_weight_b, received, source.weight_b, n, offset(source));
  } else {
    for (std::size_t begin = 0; begin < n; begin += kTile) {
      const std::size_t end = std::min(n, begin + kTile);
      for (std::size_t i = begin; i < end; ++i) x_next_[i] = row_.self_weight * x_[i];
      if (sends_b_)
        for (std::size_t i = begin; i < end; ++i) b_next_[i] = row_.self_weight_b * b_[i];
      for (const Source& source : row_.sources) {
        const double* received = source.lane == Lane::a ? x_.data() : b_.data();
        add_rotated(x_next_.data(), received, source.weight, n, offset(source), begin, end);
        if (sends_b_) add_rotated(b_next_.data(), received, source.weight_b, n, offset(source), begin, end);
      }
    }
  }
  x_.swap(x_next_);
  b_.swap(b_next_);
}

void Mixer::advance_matching(const Matching& schedule) {
  partners_.resize(static_cast<std::size_t>(schedule.size()));
  schedule.partners(step_, partners_);
  const double theirs = schedule.weight();
  const auto d = static_cast<std::size_t>(dim_);
  std::size_t paired = 0;
  for (std::size_t i = 0; i < partners_.size(); ++i) {
    const auto j = static_cast<std::size_t>(partners_[i]);
    paired += i != j;
    if (d == 1) {
      x_next_[i] = x_[i] - theirs * (x_[i] - x_[j]);
    } else {
      for (std::size_t c = 0; c < d; ++c)
        x_next_[i * d + c] = x_[i * d + c] - theirs * (x_[i * d + c] - x_[j * d + c]);
    }
  }
  messages_ = static_cast<double>(paired);
  x_.swap(x_next_);
}

void Mixer::fill_cache() {
  const Step period = schedule_->random() ? 0 : schedule_->period();
  if (circulant_ != nullptr || matching_ != nullptr || period == 0 ||
      period > kCacheLimit / schedule_->size())
    return;
  for (Step t = 0; t < period; ++t) cache_.emplace_back(*schedule_, t);
}

void Mixer::advance_general() {
  if (cache_.empty()) {
    mix_general(RoundMatrix(*schedule_, step_));
  } else {
    mix_general(cache_[static_cast<std::size_t>(step_) % cache_.size()]);
  }
}

void Mixer::mix_general(const RoundMatrix& round) {
  messages_ = round.messages();
  if (mixing_ == Mixing::two_block && sends_b_) {
    round.multiply_blocks(x_.data(), b_.data(), x_next_.data(), b_next_.data(), dim_);
    b_.swap(b_next_);
  } else {
    round.multiply(x_.data(), x_next_.data(), dim_);
  }
  x_.swap(x_next_);
  if (mixing_ != Mixing::push_sum) return;
  round.multiply(p_.data(), p_next_.data());
  p_.swap(p_next_);
  const auto d = static_cast<std::size_t>(dim_);
  for (std::size_t i = 0; i < p_.size(); ++i)
    if (p_[i] > 0)  // a rank that gave everything away keeps its last estimate
      for (std::size_t c = 0; c < d; ++c) estimate_[i * d + c] = x_[i * d + c] / p_[i];
}

double distance_to(std::span<const double> values, std::span<const double> mean) {
  // Four independent sums, so that additions do not wait for each other.
  std::array<double, 4> sums{};
  if (mean.size() == 1) {
    const double m = mean[0];
    std::size_t i = 0;
    for (; i + 4 <= values.size(); i += 4)
      for (std::size_t k = 0; k < 4; ++k) sums[k] += (values[i + k] - m) * (values[i + k] - m);
    for (; i < values.size(); ++i) sums[0] += (values[i] - m) * (values[i] - m);
  } else {
    for (std::size_t i = 0; i < values.size(); i += mean.size())
      for (std::size_t c = 0; c < mean.size(); ++c)
        sums[c % 4] += (values[i + c] - mean[c]) * (values[i + c] - mean[c]);
  }
  return std::sqrt(sums[0] + sums[1] + sums[2] + sums[3]);
}

std::vector<double> mean_of(std::span<const double> values, int dim) {
  std::vector<long double> sums(static_cast<std::size_t>(dim), 0);
  for (std::size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += values[i];
  std::vector<double> mean;
  const std::size_t n = values.size() / sums.size();
  for (const long double sum : sums) mean.push_back(static_cast<double>(sum / static_cast<long double>(n)));
  return mean;
}

}  // namespace starling::topology
