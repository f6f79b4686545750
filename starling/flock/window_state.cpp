#include "starling/flock/window_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "starling/flock/flock.h"
#include "starling/flock/flock_state.h"
#include "starling/kernel/arithmetic.h"

namespace starling::flock {
namespace {

std::string list(const std::vector<Rank>& ranks, const FlockState& flock) {
  std::vector<std::string> words;
  for (const Rank rank : ranks) words.push_back(std::to_string(flock.own(rank)));
  return words.empty() ? "none" : join_words(words);
}

bool has(const std::vector<Rank>& ranks, Rank one) {
  return std::find(ranks.begin(), ranks.end(), one) != ranks.end();
}

constexpr std::size_t kCardHead = 4;  // the sources follow, whose number comes last of these

std::string elements_of(const ConstBuffer& value) {
  return fmt::format("{} x {} in {}", value.count, starling::name(value.dtype), starling::name(value.memory));
}

/// Some rank could not make its part of a window; all throw it.
class WindowNotMade : public Error {
 public:
  using Error::Error;
};

// Waits until all ranks have done their part of making a window.
void together(Flock flock, const std::string& window, const std::string& operation,
              const std::function<void()>& part) {
  std::vector<std::int64_t> told;  // rank, length, letters
  try {
    part();
  } catch (const Error& error) {
    const std::string why = error.what();
    told = {flock.rank(), static_cast<std::int64_t>(why.size())};
    told.insert(told.end(), why.begin(), why.end());
  }
  const auto all = flock.allgather(told, operation);
  if (all.size() < 2) return;
  const auto letters = all.begin() + 2;
  const auto length = std::clamp<std::int64_t>(all[1], 0, all.end() - letters);
  throw WindowNotMade(fmt::format("{}: rank {} could not make its part of the window: {}", window, all[0],
                                  std::string(letters, letters + length)));
}

// All ranks must make a window with tensors of the same kind.
void check_same_tensors(Flock flock, const Buffer& tensor, const std::string& window,
                        const std::string& operation) {
  const std::vector<std::int64_t> mine = {flock.rank(), static_cast<std::int64_t>(tensor.count),
                                          static_cast<std::int64_t>(tensor.dtype),
                                          static_cast<std::int64_t>(tensor.memory)};
  const auto all = flock.allgather(mine, operation);
  for (std::size_t i = 0; i + mine.size() <= all.size(); i += mine.size()) {
    if (std::equal(mine.begin() + 1, mine.end(), all.begin() + static_cast<std::ptrdiff_t>(i) + 1)) continue;
    const ConstBuffer theirs(static_cast<DType>(all[i + 2]), nullptr, static_cast<std::size_t>(all[i + 1]),
                             static_cast<MemoryKind>(all[i + 3]), nullptr);
    throw Mismatch(fmt::format("{}: rank {} made the window with {}, rank {} with {}", window, flock.rank(),
                               elements_of(tensor), all[i], elements_of(theirs)));
  }
}

}  // namespace

Window::State::State(FlockState& given, std::string called, Buffer block, Exchange around,
                     const WindowOptions& chosen)
    : flock(&given),
      name(std::move(called)),
      topic(flock->mailbox.topic(name, flock->identity)),
      tensor(block),
      neighbors(std::move(around)),
      options(chosen),
      pool(tensor.on_host() || tensor.count == 0
               ? nullptr
               : flock->fabric->device_pools()->open(tensor.bytes(), flock->members)),
      shape{tensor.at<const void>(nullptr), flock->members, chosen.shared, pool.get()} {
  memory = flock->fabric->expose(shape.part_bytes(neighbors.sources.size()));
  WindowPart part{flock->self(), flock->fabric->exposed(flock->self(), memory)};
  for (const Source& source : neighbors.sources) part.sources.push_back(source.rank);
  for (std::size_t k = 0; k < part.sources.size(); ++k)
    slots.emplace(part.sources[k], part.slot(flock->fabric, shape, k, part.owner));
  for (const auto& [source, cell] : slots) sources.push_back(source);
  if (flock->fabric->remote_calls() != nullptr)
    service = std::make_unique<WindowService>(flock->fabric, shape, part);
}

void Window::State::free() {
  service.reset();
  for (auto& [rank, cell] : slots) cell.withdraw();
  for (auto& [rank, transport] : transports) transport->withdraw();
  flock->fabric->withdraw(memory, shape.part_bytes(slots.size()));
  slots.clear();
  transports.clear();
  pool.reset();
}

std::vector<std::int64_t> Window::State::card() const {
  std::vector<std::int64_t> card = {
      flock->self(), static_cast<std::int64_t>(service ? service->number() : memory),
      pool ? pool->number() : 0, static_cast<std::int64_t>(neighbors.sources.size())};
  for (const Source& source : neighbors.sources) card.push_back(source.rank);
  return card;
}

// The cards come from other processes, so check them.
void Window::State::check_card(const std::vector<std::int64_t>& cards, std::size_t at) const {
  const auto is_member = [&](std::int64_t rank) {
    return std::in_range<Rank>(rank) && has(flock->members, static_cast<Rank>(rank));
  };
  const std::size_t left = cards.size() - at;
  const bool whole = left >= kCardHead && cards[at + kCardHead - 1] >= 0 &&
                     static_cast<std::uint64_t>(cards[at + kCardHead - 1]) <= left - kCardHead;
  const auto begin_of_sources = cards.begin() + static_cast<std::ptrdiff_t>(whole ? at + kCardHead : at);
  const auto end = begin_of_sources + (whole ? cards[at + kCardHead - 1] : 0);
  if (!whole || !is_member(cards[at]) || !std::all_of(begin_of_sources, end, is_member))
    throw Error(fmt::format("{}: rank {} sent a damaged description of its window", name, cards[at]));
}

void Window::State::connect(const std::vector<std::int64_t>& cards) {
  const Rank self = flock->self();
  for (std::size_t i = 0; i < cards.size();) {
    check_card(cards, i);
    WindowPart part{static_cast<Rank>(cards[i])};
    const auto called = static_cast<std::uint64_t>(cards[i + 1]);
    const auto number = static_cast<std::uint32_t>(cards[i + 2]);
    const auto count = static_cast<std::size_t>(cards[i + kCardHead - 1]);
    for (std::size_t k = 0; k < count; ++k)
      part.sources.push_back(static_cast<Rank>(cards[i + kCardHead + k]));
    i += kCardHead + count;
    if (pool && part.owner != self) {
      pools[part.owner] = number;
      if (options.shared || has(sources, part.owner) || has(part.sources, self))
        readers.push_back(part.owner);
    }
    if (service && part.owner != self) {
      const bool has_slot = has(part.sources, self);
      transports[part.owner] = std::make_unique<RemoteWindow>(
          flock->fabric, shape,
          RemoteWindowOptions{name, [runtime = flock->runtime.get()] { return runtime->timeout.load(); }},
          part.owner, called, has_slot, service->progress(part.owner));
      continue;
    }
    const std::uint64_t where = part.owner == self ? memory : called;
    const std::uint64_t last = where + shape.part_bytes(count) - 1;
    part.memory = flock->fabric->exposed(part.owner, where);
    if (where % alignof(WindowControl) != 0 || last < where ||
        flock->fabric->exposed(part.owner, last) == nullptr)
      throw Error(fmt::format("{}: rank {} sent a damaged description of its window", name, part.owner));
    auto transport = std::make_unique<SharedMemoryWindow>(flock->fabric, shape, part, self);
    if (part.owner == self) own = transport.get();
    transports[part.owner] = std::move(transport);
  }
  for (const auto& [rank, transport] : transports)
    if (transport->has_slot()) destinations.push_back(rank);
  options.readable = options.readable || options.shared;
}

void Window::State::lend_memory() {
  pool->connect(pools, std::chrono::steady_clock::now() + flock->runtime->timeout.load());
  pool->prepare(readers);
}

void Window::State::begin() {
  for (const Rank rank : readers)
    if (flock->fabric->alive(rank)) pool->find(rank, 0);
  if (!options.zero)
    for (auto& [source, cell] : slots)
      cell.replace([&](const Content& fresh) {
        kernel::arithmetic_in(tensor.memory).copy(tensor.at<void>(fresh.data), tensor);
        *fresh.p = options.copies_p;
        *fresh.stamp = 0;
      });
  publish_own();
}

void Window::State::publish_own() {
  if (!options.readable) return;
  const DeviceGuard guard = this->guard();
  own->tensor().replace([&](const Content& fresh) {
    kernel::arithmetic_in(tensor.memory).copy(tensor.at<void>(fresh.data), tensor);
    *fresh.p = p;
    *fresh.stamp = progress;
  });
}

void Window::State::check_value(const ConstBuffer& value, const char* call) const {
  if (value.dtype != tensor.dtype || value.count != tensor.count || value.memory != tensor.memory)
    throw InvalidArgument(fmt::format("{}: {} takes {}, as this window's tensor has, not {}", name, call,
                                      elements_of(tensor), elements_of(value)));
}

void Window::State::check_shared() const {
  if (!options.shared)
    throw InvalidArgument(
        fmt::format("{}: only a window made as shared has values that others change", name));
}

Cell& Window::State::own_value() {
  check_shared();
  return own->tensor();
}

void Window::State::check_neighbors(const Weights& weights, const std::vector<Rank>& valid,
                                    const char* what) const {
  for (const auto& [rank, weight] : weights)
    if (!std::binary_search(valid.begin(), valid.end(), flock->global(rank, name)))
      throw InvalidArgument(fmt::format("{}: rank {} is not one of this window's {}: {}", name, rank, what,
                                        list(valid, *flock)));
}

// The sources and destinations of a whole period; the schedule's weights if every step has the same.
Exchange Flock::all_neighbors(const SchedulePtr& schedule) const {
  if (schedule->random())
    throw InvalidArgument(fmt::format(
        "create_window: {} draws new neighbors in every step; use a topology with fixed neighbors",
        schedule->name()));
  std::map<Rank, double> sources;
  std::set<Rank> destinations;
  const Step period = std::max<Step>(1, schedule->period());
  for (Step step = 0; step < period; ++step) {
    const Exchange exchange = schedule->exchange(step, rank());
    for (std::int64_t i = 0; i < exchange.group.size(); ++i)
      if (exchange.group[i] != rank()) {
        sources[exchange.group[i]] = 0;
        destinations.insert(exchange.group[i]);
      }
    for (const Source& source : exchange.sources) sources[source.rank] = period == 1 ? source.weight : 0;
    for (const Destination& destination : exchange.destinations) destinations.insert(destination.rank);
  }
  const bool weighted =
      std::all_of(sources.begin(), sources.end(), [](const auto& one) { return one.second != 0; });
  const double share = 1.0 / static_cast<double>(sources.size() + 1);
  Exchange all;
  all.self_weight = weighted ? schedule->exchange(0, rank()).self_weight : share;
  for (const auto& [source, weight] : sources)
    all.add_source(state_->global(source, "create_window"), weighted ? weight : share);
  for (const Rank destination : destinations)
    all.add_destination(state_->global(destination, "create_window"));
  return all;
}

Window Flock::create_window(Buffer tensor, Name name, const WindowOptions& options) {
  const std::string called(name.text());
  const Exchange neighbors = all_neighbors(options.schedule ? options.schedule : schedule());
  state_->check_new_window(called);
  std::string creation = called;
  if (described(called) == called) {  // otherwise another call of the user makes the window
    const auto call = std::make_shared<UserCall>();
    call->call = fmt::format("create_window('{}')", called);
    creation += "/create";
    set_user_call(creation, call);
  }
  check_same_tensors(*this, tensor, called, creation + "/shape");
  if (!tensor.on_host() && state_->fabric->device_pools() == nullptr)
    throw InvalidArgument(fmt::format(
        "{}: this flock has no windows in {}: its ranks must share a host, where CUDA's driver is found when "
        "they join; copy to the host first",
        called, starling::name(tensor.memory)));
  auto state = std::make_shared<Window::State>(*state_, called, tensor, neighbors, options);
  state->connect(allgather(state->card(), creation + "/window"));
  try {
    if (state->pool) together(*this, called, creation + "/memory", [&] { state->lend_memory(); });
    together(*this, called, creation + "/ready", [&] { state->begin(); });  // every slot has its first value
  } catch (const WindowNotMade&) {
    state->free();
    throw;
  }
  state_->add_window(called, state);
  return window(name);
}

// The handle keeps the flock alive, and the flock keeps the state.
Window Flock::window(Name name) const {
  struct Kept {
    std::shared_ptr<FlockState> flock;
    std::shared_ptr<Window::State> state;
  };
  auto kept = std::make_shared<Kept>(Kept{state_, state_->window(name.text())});
  return Window(std::shared_ptr<Window::State>(kept, kept->state.get()));
}

void Window::free() {
  const std::shared_ptr<State> state = std::move(state_);
  Flock flock(state->flock->shared_from_this());
  flock.barrier(state->name + "/done");
  state->flock->forget_window(state->name);
  state->free();
  flock.barrier(state->name + "/free");
}

}  // namespace starling::flock
