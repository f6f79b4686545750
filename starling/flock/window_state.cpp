#include "starling/flock/window_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "starling/flock/flock.h"
#include "starling/kernel/copy.h"

namespace starling {
namespace {

std::string list(const std::map<Rank, Cell>& cells, const Core& core) {
  std::vector<std::string> words;
  for (const auto& [rank, cell] : cells) words.push_back(std::to_string(core.own(rank)));
  return words.empty() ? "none" : join_words(words);
}

}  // namespace

// A rank's part: control, the cell of its own tensor, a cell per source.
Window::State::State(Core& given, std::string called, MutableBlock block, Exchange around,
                     const WindowOptions& chosen)
    : core(&given),
      name(std::move(called)),
      topic(core->mailbox.topic(name, core->identity)),
      tensor(block),
      neighbors(std::move(around)),
      options(chosen) {
  bytes_exposed = 64 + Cell::control_bytes(core->members.size(), tensor_writers()) +
                  neighbors.sources.size() * Cell::control_bytes(2, 2);
  memory = core->fabric->expose(bytes_exposed);
}

void Window::State::free() {
  for (auto* cells : {&slots, &outlets, &tensors}) {
    for (auto& [rank, cell] : *cells) cell.withdraw();
    cells->clear();
  }
  core->fabric->withdraw(memory, bytes_exposed);
}

WindowControl& Window::State::control(Rank global_rank) const {
  return *reinterpret_cast<WindowControl*>(core->fabric->exposed(global_rank, parts.at(global_rank)));
}

void Window::State::connect(const std::vector<std::int64_t>& everybody) {
  const std::size_t bytes = ConstBlock(tensor).bytes();
  const std::size_t own_cell = Cell::control_bytes(core->members.size(), tensor_writers());
  const std::size_t slot_cell = Cell::control_bytes(2, 2);
  // Of each: member, memory, number of sources, sources.
  std::map<Rank, std::vector<Rank>> sources_of;
  for (std::size_t i = 0; i < everybody.size();) {
    const auto rank = static_cast<Rank>(everybody[i]);
    parts[rank] = static_cast<std::uint64_t>(everybody[i + 1]);
    const auto count = static_cast<std::size_t>(everybody[i + 2]);
    for (std::size_t k = 0; k < count; ++k)
      sources_of[rank].push_back(static_cast<Rank>(everybody[i + 3 + k]));
    i += 3 + count;
  }
  const Rank self = core->self();
  for (const auto& [rank, part] : parts) {
    std::byte* base = core->fabric->exposed(rank, part);
    // The owner writes, or all do; everybody reads.
    std::vector<Rank> parties = {rank};
    for (const Rank member : core->members)
      if (member != rank) parties.push_back(member);
    const auto me =
        static_cast<std::size_t>(std::find(parties.begin(), parties.end(), self) - parties.begin());
    tensors.emplace(rank, Cell(core->fabric, base + 64, parties, tensor_writers(), me, bytes));
    for (std::size_t k = 0; k < sources_of[rank].size(); ++k) {
      const Rank source = sources_of[rank][k];
      std::byte* cell = base + 64 + own_cell + k * slot_cell;
      if (rank == self) slots.emplace(source, Cell(core->fabric, cell, {rank, source}, 2, 0, bytes));
      if (source == self) outlets.emplace(rank, Cell(core->fabric, cell, {rank, source}, 2, 1, bytes));
    }
  }
  if (!options.zero)
    for (auto& [source, cell] : slots)
      cell.replace([&](const Content& fresh) {
        copy_bytes(fresh.data, tensor.data, bytes);
        *fresh.p = p;
        *fresh.stamp = 0;
      });
  options.readable = options.readable || options.shared;
  publish_own();
}

void Window::State::publish_own() {
  if (!options.readable) return;
  tensors.at(core->self()).replace([&](const Content& fresh) {
    copy_bytes(fresh.data, tensor.data, ConstBlock(tensor).bytes());
    *fresh.p = p;
    *fresh.stamp = progress;
  });
}

Cell& Window::State::shared_cell(Rank rank) {
  if (!options.shared)
    throw InvalidArgument(
        fmt::format("{}: only a window made as shared has values that others change", name));
  return tensors.at(core->global(rank, name));
}

void Window::State::check_neighbors(const Weights& weights, const std::map<Rank, Cell>& cells,
                                    const char* what) const {
  for (const auto& [rank, weight] : weights)
    if (cells.count(core->global(rank, name)) == 0)
      throw InvalidArgument(fmt::format("{}: rank {} is not one of this window's {}: {}", name, rank, what,
                                        list(cells, *core)));
}

// The sources and destinations of a whole period; weights where every step has the same.
Exchange Flock::all_neighbors(const SchedulePtr& schedule) const {
  if (schedule->random())
    throw InvalidArgument(fmt::format("win_create: {} draws new neighbours all the time", schedule->name()));
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
    all.hear(core_->global(source, "win_create"), weighted ? weight : share);
  for (const Rank destination : destinations) all.tell(core_->global(destination, "win_create"));
  return all;
}

Window Flock::create_window(MutableBlock tensor, Name name, const WindowOptions& options) {
  const Exchange neighbors = all_neighbors(options.schedule ? options.schedule : schedule());
  const std::string called(name.text());
  core_->check_new_window(called);
  auto state = std::make_shared<Window::State>(*core_, called, tensor, neighbors, options);
  const std::vector<std::int64_t> shape = {rank(), static_cast<std::int64_t>(tensor.count),
                                           static_cast<std::int64_t>(tensor.dtype)};
  std::vector<std::int64_t> card = {core_->self(), static_cast<std::int64_t>(state->memory),
                                    static_cast<std::int64_t>(neighbors.sources.size())};
  for (const Source& source : neighbors.sources) card.push_back(source.rank);
  const auto everybodys = allgather(shape, called + "/shape");
  for (std::size_t i = 0; i < everybodys.size(); i += 3)
    if (everybodys[i + 1] != shape[1] || everybodys[i + 2] != shape[2])
      throw Mismatch(fmt::format("{}: rank {} made the window with {} x {}, rank {} with {} x {}", called,
                                 rank(), tensor.count, starling::name(tensor.dtype), everybodys[i],
                                 everybodys[i + 1], starling::name(static_cast<DType>(everybodys[i + 2]))));
  state->connect(allgather(card, called + "/window"));
  barrier(called + "/ready");  // every slot has its first value
  core_->add_window(called, state);
  return window(name);
}

// A handle keeps the core alive, which keeps the state.
Window Flock::window(Name name) const {
  struct Kept {
    std::shared_ptr<Core> core;
    std::shared_ptr<Window::State> state;
  };
  auto kept = std::make_shared<Kept>(Kept{core_, core_->window(name.text())});
  return Window(std::shared_ptr<Window::State>(kept, kept->state.get()));
}

void Flock::win_free(Window&& window) {
  const std::string called = window.name();
  barrier(called + "/done");
  core_->forget_window(called);
  Window(std::move(window)).release();
  barrier(called + "/free");
}

}  // namespace starling
