#include "starling/flock/window.h"

#include <algorithm>
#include <fmt/format.h>
#include <thread>

#include "starling/flock/errors.h"
#include "starling/flock/weighted_sum.h"
#include "starling/flock/window_state.h"
#include "starling/kernel/arithmetic.h"
#include "starling/record/log.h"

namespace starling::flock {
namespace {

constexpr std::chrono::milliseconds kBetweenQuestions{100};

// The weight for each of these ranks, by rank of the whole flock; 1 unless weights are given.
std::vector<std::pair<Rank, double>> shares(const FlockState& flock, const std::vector<Rank>& ranks,
                                            const std::optional<Window::Weights>& given) {
  std::vector<std::pair<Rank, double>> all;
  for (const Rank rank : ranks) {
    if (!given) {
      all.emplace_back(rank, 1);
    } else if (const auto found = given->find(flock.own(rank)); found != given->end()) {
      all.emplace_back(rank, found->second);
    }
  }
  return all;
}

}  // namespace

void Window::deposit(ConstBuffer value, const std::optional<Weights>& given, bool add) {
  State& state = *state_;
  if (given) {
    state.check_neighbors(*given, state.destinations, "destinations");
    for (const auto& [rank, weight] : *given) check_weight(state.tensor.dtype, weight);
  }
  const DeviceGuard guard = state.guard();
  Trace trace = state.trace(add ? RecordKind::accumulate : RecordKind::put);
  const std::size_t bytes = state.tensor.bytes();
  for (const auto& [rank, weight] : shares(*state.flock, state.destinations, given)) {
    state.transport(rank).deposit({value, weight, weight * state.p, state.progress, add});
    trace.peer(rank);
    trace.bytes(bytes);
    state.flock->runtime->bytes_sent += bytes;
  }
  trace.end(false);
}

// Scales the tensor and p to the share that was not sent.
void Window::keep_share(double self_weight) {
  if (self_weight == 1) return;
  const DeviceGuard guard = state_->guard();
  const Buffer& tensor = state_->tensor;
  if (tensor.count > 0) kernel::arithmetic_in(tensor.memory).scale(tensor, self_weight);
  state_->p *= self_weight;
  state_->publish_own();
}

void Window::put(const std::optional<Weights>& destinations, double self_weight) {
  deposit(state_->tensor, destinations, false);
  keep_share(self_weight);
}

void Window::accumulate(const std::optional<Weights>& destinations, double self_weight) {
  deposit(state_->tensor, destinations, true);
  keep_share(self_weight);
}

void Window::put_value(ConstBuffer value, const std::optional<Weights>& destinations) {
  state_->check_value(value, "put_value");
  deposit(value, destinations, false);
}

void Window::accumulate_value(ConstBuffer value, const std::optional<Weights>& destinations) {
  state_->check_value(value, "accumulate_value");
  deposit(value, destinations, true);
}

void Window::publish() {
  state_->publish_own();
}

void Window::load(Buffer out) {
  state_->check_value(out, "load");
  const DeviceGuard guard = state_->guard();
  const Cell::Held own = state_->own_value().look();
  kernel::arithmetic_in(out.memory).copy(out, out.at<const void>(own.data()));
}

void Window::store(ConstBuffer value) {
  state_->check_value(value, "store");
  const DeviceGuard guard = state_->guard();
  state_->own_value().replace([&](const Content& fresh) {
    kernel::arithmetic_in(value.memory).copy(value.at<void>(fresh.data), value);
    *fresh.p = state_->p;
    *fresh.stamp = state_->progress;
  });
}

void Window::add(ConstBuffer increment) {
  state_->check_value(increment, "add");
  const DeviceGuard guard = state_->guard();
  state_->own_value().change([&](const Content& fresh, const Cell::Held& old) {
    const Term terms[] = {{increment.at<const void>(old.data()), 1}, {increment, 1}};
    weighted_sum(increment.at<void>(fresh.data), terms);
    *fresh.p = old.p();
    *fresh.stamp = state_->progress;
  });
}

void Window::average_with(Rank other, ConstBuffer mine, double weight, Buffer moved) {
  State& state = *state_;
  state.check_shared();
  state.check_value(mine, "average_with");
  state.check_value(moved, "average_with");
  check_weight(state.tensor.dtype, weight);
  check_weight(state.tensor.dtype, -weight);
  const DeviceGuard guard = state.guard();
  Trace trace = state.trace(RecordKind::accumulate);
  const Rank rank = state.flock->global(other, state.name);
  const std::optional<Step> stamp = state.transport(rank).average_with(mine, weight, moved);
  const std::size_t bytes = state.tensor.bytes();
  if (!stamp) {
    if (!state.flock->reweighting())
      throw PeerLost(rank, state.flock->mailbox.described(state.name), state.progress,
                     state.flock->mailbox.why_left(rank));
    kernel::arithmetic_in(moved.memory).zero(moved);  // a lost rank's value cannot be met: no movement
    return;
  }
  state.staleness.add(state.progress - *stamp);
  trace.peer(rank);
  trace.bytes(bytes);
  trace.end(false);
  state.flock->runtime->bytes_sent += bytes;
}

void Window::clear() {
  for (auto& [rank, cell] : state_->slots) cell.take();
}

void Window::set_progress(Step steps) {
  state_->progress = steps;
  for (const auto& [rank, transport] : state_->transports) transport->tell_progress(steps);
}

Step Window::progress(Rank rank) const {
  return state_->transport(state_->flock->global(rank, state_->name)).progress();
}

bool Window::alive(Rank rank) const {
  const Rank global = state_->flock->global(rank, state_->name);
  return state_->transports.contains(global) && state_->flock->fabric->alive(global);
}

Staleness Window::staleness() const {
  return state_->staleness;
}

void Window::get(const std::optional<Weights>& given) {
  State& state = *state_;
  if (given) state.check_neighbors(*given, state.sources, "sources");
  const DeviceGuard guard = state.guard();
  Trace trace = state.trace(RecordKind::get);
  for (const auto& [rank, share] : shares(*state.flock, state.sources, given)) {
    if (!state.transports.contains(rank)) continue;  // lost before it had a part here
    const WindowTransport::Reading reading = state.transport(rank).read(
        [&, source = rank, weight = share](const ConstBuffer& value, double p, Step stamp) {
          state.slots.at(source).replace([&](const Content& fresh) {
            const Term term{value, weight};
            weighted_sum(value.at<void>(fresh.data), {&term, 1});
            *fresh.p = weight * p;
            *fresh.stamp = stamp;
          });
        });
    if (reading == WindowTransport::Reading::lost) continue;
    if (reading == WindowTransport::Reading::not_readable)
      throw InvalidArgument(
          fmt::format("{}: rank {} made this window not readable", state.name, state.flock->own(rank)));
    trace.peer(rank);
    trace.bytes(state.tensor.bytes());
  }
  trace.end(false);
}

void Window::update(bool reset) {
  const auto [self_weight, weights] = usual_weights();
  update(self_weight, weights, reset);
}

std::pair<double, Window::Weights> Window::usual_weights() const {
  Weights weights;
  for (const Source& source : state_->neighbors.sources)
    weights[state_->flock->own(source.rank)] = source.weight;
  return {state_->neighbors.self_weight, weights};
}

void Window::update(double self_weight, const Weights& weights, bool reset) {
  State& state = *state_;
  state.check_neighbors(weights, state.sources, "sources");
  const DeviceGuard guard = state.guard();
  Trace trace = state.trace(RecordKind::update);
  // One pass over all available slots, which are held until it is done.
  std::vector<Cell::Held> held;
  std::vector<Term> terms = {{state.tensor, self_weight}};
  double p = self_weight * state.p;
  for (const auto& [source, weight] : weights) {
    const Rank rank = state.flock->global(source, state.name);
    Cell& cell = state.slots.at(rank);
    state.seen[rank] = cell.deposits();
    held.push_back(reset ? cell.take() : cell.look());
    if (!held.back()) continue;
    trace.peer(rank);
    trace.bytes(state.tensor.bytes());
    terms.emplace_back(state.tensor.at<const void>(held.back().data()), weight);
    p += weight * held.back().p();
    state.staleness.add(state.progress - held.back().stamp());
  }
  if (state.tensor.count > 0) weighted_sum(state.tensor, terms);
  state.p = p;
  held.clear();  // on a device, when the sum has been computed
  state.publish_own();
  trace.end(false);
}

void Window::update_into(Buffer out, double self_weight, const Weights& weights, bool reset) {
  State& state = *state_;
  state.check_value(out, "update_into");
  const Buffer tensor = state.tensor;
  const double p = state.p;
  const bool readable = std::exchange(state.options.readable, false);
  if (out.address() != tensor.address()) kernel::arithmetic_in(out.memory).copy(out, tensor);
  state.tensor = out;
  try {
    update(self_weight, weights, reset);
  } catch (...) {
    state.tensor = tensor;
    state.options.readable = readable;
    throw;
  }
  state.tensor = tensor;
  state.p = p;
  state.options.readable = readable;
}

void Window::update_then_collect() {
  Weights ones;
  for (const auto& [rank, cell] : state_->slots) ones[state_->flock->own(rank)] = 1;
  update(1, ones, true);
}

std::uint64_t Window::version(Rank source) const {
  const Rank rank = state_->flock->global(source, state_->name);
  state_->check_neighbors({{source, 1}}, state_->sources, "sources");
  const auto seen = state_->seen.find(rank);
  return state_->slots.at(rank).deposits() - (seen == state_->seen.end() ? 0 : seen->second);
}

double Window::p() const {
  return state_->p;
}
void Window::set_p(double p) {
  state_->p = p;
}

const std::string& Window::name() const {
  return state_->name;
}

std::vector<Rank> Window::sources() const {
  std::vector<Rank> ranks = state_->sources;
  for (Rank& rank : ranks) rank = state_->flock->own(rank);
  return ranks;
}
std::vector<Rank> Window::destinations() const {
  std::vector<Rank> ranks = state_->destinations;
  for (Rank& rank : ranks) rank = state_->flock->own(rank);
  return ranks;
}

// In ascending order, so that no two ranks wait for each other.
void Window::Mutex::take(std::vector<Rank> ranks, const std::function<void()>& now_and_then) {
  using Clock = std::chrono::steady_clock;
  FlockState& flock = *state_->flock;
  for (Rank& rank : ranks) {
    const Rank found = flock.global(rank, state_->name);
    if (!state_->transports.contains(found))
      throw InvalidArgument(fmt::format(
          "{}: rank {} has no part in this window, because it was lost before the window was made",
          state_->name, rank));
    rank = found;
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  const auto until = Clock::now() + flock.runtime->timeout.load();
  auto asked = Clock::now();
  for (const Rank rank : ranks) {
    for (int attempt = 0;; ++attempt) {
      const std::optional<Rank> by = state_->transport(rank).lock(attempt % 16 == 15);
      if (!by) break;
      if (Clock::now() > until) {
        const std::string text = fmt::format(
            "{}: rank {} has held the mutex of rank {} for longer than the timeout", state_->name, *by, rank);
        dump_operations(*flock.runtime, text);
        throw TimedOut(text);
      }
      if (now_and_then && Clock::now() > asked + kBetweenQuestions) {
        now_and_then();
        asked = Clock::now();
      }
      if (attempt < 8) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(std::min(1000, 20 * attempt)));
      }
    }
    held_.push_back(rank);
  }
}

Window::Mutex::~Mutex() {
  if (!state_) return;
  try {
    for (const Rank rank : held_) state_->transport(rank).unlock();
  } catch (const std::exception& error) {
    log(LogLevel::normal, fmt::format("{}: a mutex was not released: {}", state_->name, error.what()));
  }
}

Window::Mutex Window::mutex(const std::vector<Rank>& ranks, const std::function<void()>& now_and_then) {
  Mutex mutex(state_);
  mutex.take(ranks, now_and_then);
  return mutex;
}

Window::Mutex Window::mutex() {
  return mutex({state_->flock->rank});
}

}  // namespace starling::flock
