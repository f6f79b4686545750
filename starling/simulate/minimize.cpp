#include "starling/simulate/minimize.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

namespace starling::simulate {
namespace {

using Vector = std::vector<double>;

constexpr std::size_t kMemory = 20;
constexpr int kMostIterations = 5000;
constexpr int kMostTrials = 40;
constexpr int kPatience = 30;        // iterations without a smaller gradient: only rounding errors are left
constexpr double kSmallest = 1e-14;  // relative to the first gradient
constexpr double kSlackOfValue = 1e-14;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
double norm(const Vector& a) {
  return std::sqrt(dot(a, a));
}

struct State {
  Vector x, gradient;
  double value = 0;
};

State evaluate(const Objective& objective, Vector x) {
  State state{std::move(x), Vector(objective.dim()), 0};
  objective.mean_gradient(state.x, state.gradient);
  state.value = objective.value(state.x);
  return state;
}

struct Pair {
  Vector step, change;  // of x and of the gradient
  double product;
};

// The product of the gradient and the inverse Hessian that the pairs approximate.
Vector direction(const std::deque<Pair>& pairs, const Vector& gradient) {
  Vector q = gradient;
  Vector shares(pairs.size());
  for (std::size_t i = pairs.size(); i-- > 0;) {
    shares[i] = dot(pairs[i].step, q) / pairs[i].product;
    for (std::size_t k = 0; k < q.size(); ++k) q[k] -= shares[i] * pairs[i].change[k];
  }
  if (!pairs.empty()) {
    const double scale = pairs.back().product / dot(pairs.back().change, pairs.back().change);
    for (double& value : q) value *= scale;
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double share = shares[i] - dot(pairs[i].change, q) / pairs[i].product;
    for (std::size_t k = 0; k < q.size(); ++k) q[k] += share * pairs[i].step[k];
  }
  for (double& value : q) value = -value;
  return q;
}

// Finds a step that lowers the value enough and flattens the slope (Wolfe), by bisection. Near the minimum
// values differ only by rounding, so the slope decides.
bool search(const Objective& objective, const State& from, const Vector& along, double first, State& found) {
  const double slope = dot(from.gradient, along);
  const double slack = kSlackOfValue * std::abs(from.value);
  double low = 0, high = 0, length = first;
  for (int trial = 0; trial < kMostTrials; ++trial) {
    Vector x = from.x;
    for (std::size_t k = 0; k < x.size(); ++k) x[k] += length * along[k];
    found = evaluate(objective, std::move(x));
    const double here = dot(found.gradient, along);
    if (!(found.value <= from.value + 1e-4 * length * slope + slack) || here > -0.9 * slope) {
      high = length;
    } else if (here < 0.9 * slope) {
      low = length;
    } else {
      return true;
    }
    length = high > 0 ? (low + high) / 2 : 2 * length;
  }
  return false;
}

}  // namespace

std::vector<double> minimize(const Objective& objective) {
  Vector start(objective.dim());
  objective.start(0, start);
  State now = evaluate(objective, std::move(start));
  const double first = norm(now.gradient);
  Vector best = now.x;
  double least = first;
  int stale = 0;
  std::deque<Pair> pairs;
  for (int iteration = 0; iteration < kMostIterations && least > kSmallest * first; ++iteration) {
    const Vector along = direction(pairs, now.gradient);
    State next;
    const double length = pairs.empty() ? std::min(1.0, 1 / norm(now.gradient)) : 1;
    if (!search(objective, now, along, length, next)) {
      if (pairs.empty()) break;
      pairs.clear();  // old pairs may give a useless direction: try once more along the gradient
      continue;
    }
    Pair pair{next.x, next.gradient, 0};
    for (std::size_t k = 0; k < objective.dim(); ++k) {
      pair.step[k] -= now.x[k];
      pair.change[k] -= now.gradient[k];
    }
    pair.product = dot(pair.step, pair.change);
    now = std::move(next);
    if (pair.product > 0) pairs.push_back(std::move(pair));
    if (pairs.size() > kMemory) pairs.pop_front();
    const double size = norm(now.gradient);
    stale = size < least ? 0 : stale + 1;
    if (size < least) {
      least = size;
      best = now.x;
    }
    if (stale >= kPatience) break;
  }
  return best;
}

}  // namespace starling::simulate
