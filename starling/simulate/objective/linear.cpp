#include "starling/simulate/objective/linear.h"

#include <algorithm>

#include "starling/simulate/minimize.h"
#include "starling/simulate/node_random.h"

namespace starling::simulate {
namespace {

constexpr std::size_t padded_to(std::size_t count, std::size_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace

LinearObjective::LinearObjective(const ObjectiveSetting& setting, const Options& options,
                                 const std::function<double(Rank, std::uint32_t, std::span<float>)>& fill)
    : Objective(setting.nodes, setting.dim),
      options_(options),
      seed_(setting.seed),
      columns_(padded_to(setting.dim, kLinearColumns)),
      padded_(padded_to(options.samples, kLinearRows)),
      data_(static_cast<std::size_t>(setting.nodes) * options.samples * columns_),
      zeros_(columns_) {
  rows_.reserve(static_cast<std::size_t>(nodes()) * padded_);
  targets_.reserve(rows_.capacity());
  float* row = data_.data();
  for (Rank node = 0; node < nodes(); ++node) {
    for (std::uint32_t s = 0; s < options.samples; ++s, row += columns_) {
      targets_.push_back(fill(node, s, {row, dim()}));
      rows_.push_back(row);
    }
    // A row of zeros with target 0 adds nothing to any gradient.
    rows_.resize(padded_to(rows_.size(), kLinearRows), zeros_.data());
    targets_.resize(rows_.size(), 0.0);
  }
}

LinearSamples LinearObjective::samples_of(Rank node) const {
  const std::size_t first = static_cast<std::size_t>(node) * padded_;
  return {{rows_.data() + first, padded_}, {targets_.data() + first, padded_}, columns_};
}

template <typename T>
void LinearObjective::gradient_of(const LinearSamples& samples, std::size_t count, std::span<const T> x,
                                  std::span<T> out) const {
  thread_local std::vector<T> at, sum;
  at.assign(columns_, T{0});
  std::ranges::copy(x, at.begin());
  sum.resize(columns_);
  linear_gradient(dtype_of<T>, options_.loss, samples, at.data(), 1.0 / static_cast<double>(count),
                  sum.data());
  const T weight = static_cast<T>(2 * options_.regularizer);
  if (weight == 0) {
    std::copy_n(sum.begin(), dim(), out.begin());
    return;
  }
  for (std::size_t k = 0; k < dim(); ++k) {
    const T square = T{1} + x[k] * x[k];
    out[k] = sum[k] + weight * x[k] / (square * square);
  }
}

template <typename T>
void LinearObjective::gradient_in(Rank node, Step step, std::span<const T> x, std::span<T> out) const {
  const LinearSamples all = samples_of(node);
  if (options_.batch == 0) return gradient_of(all, options_.samples, x, out);
  thread_local std::vector<const float*> rows;
  thread_local std::vector<double> targets;
  rows.clear();
  targets.clear();
  Random random = node_random(seed_, node, step, stream::kObjectiveBatch);
  for (std::uint32_t i = 0; i < options_.batch; ++i) {
    const std::uint32_t sample = random.below(options_.samples);
    rows.push_back(all.rows[sample]);
    targets.push_back(all.targets[sample]);
  }
  rows.resize(padded_to(rows.size(), kLinearRows), zeros_.data());
  targets.resize(rows.size(), 0.0);
  gradient_of({rows, targets, columns_}, options_.batch, x, out);
}

void LinearObjective::gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const {
  gradient_in(node, step, x, out);
}

void LinearObjective::gradient(Rank node, Step step, std::span<const float> x, std::span<float> out) const {
  gradient_in(node, step, x, out);
}

void LinearObjective::exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const {
  gradient_of(samples_of(node), options_.samples, x, out);
}

double LinearObjective::value(std::span<const double> x) const {
  std::vector<double> at(columns_, 0.0);
  std::ranges::copy(x, at.begin());
  double sum = 0;
  for (Rank node = 0; node < nodes(); ++node) {
    LinearSamples own = samples_of(node);
    sum += linear_loss(options_.loss, own, at.data());
    // The padding has margin 0 and adds log 2 per row.
    if (options_.loss == LinearLoss::logistic)
      sum -= static_cast<double>(padded_ - options_.samples) * std::numbers::ln2;
  }
  double value = sum / options_.samples / nodes();
  for (const double coordinate : x) {
    const double square = coordinate * coordinate;
    value += options_.regularizer * square / (1 + square);
  }
  return value;
}

std::optional<std::vector<double>> LinearObjective::minimizer() const {
  std::call_once(solved_, [this] { minimizer_ = minimize(*this); });
  return minimizer_;
}

}  // namespace starling::simulate
