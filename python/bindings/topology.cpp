#include <algorithm>
#include <atomic>
#include <pybind11/stl.h>

#include "module.h"
#include "starling/record/log.h"
#include "starling/topology/graph.h"
#include "starling/topology/hierarchical.h"
#include "starling/topology/matrix.h"
#include "starling/topology/registry.h"
#include "starling/topology/settable.h"
#include "starling/topology/stored.h"

namespace py = pybind11;

namespace starling::python {
namespace {

/// (receivers, senders, weights) of one step's matrix, the diagonal included.
using Entries = std::tuple<std::vector<Rank>, std::vector<Rank>, std::vector<double>>;

Entries entries(const Schedule& schedule, Step step, bool block_b) {
  Entries result;
  for (const Entry& entry : RoundMatrix(schedule, step).entries(block_b ? Lane::b : Lane::a)) {
    std::get<0>(result).push_back(entry.receiver);
    std::get<1>(result).push_back(entry.sender);
    std::get<2>(result).push_back(entry.weight);
  }
  return result;
}

/// For each of these entries, the sender's block that it weighs: 0 for a, 1 for b.
std::vector<int> lanes(const Schedule& schedule, Step step, bool block_b) {
  std::vector<int> result;
  for (const Entry& entry : RoundMatrix(schedule, step).entries(block_b ? Lane::b : Lane::a))
    result.push_back(entry.lane == Lane::b ? 1 : 0);
  return result;
}

/// The first pair (from, to) such that data of rank `from` never reaches rank `to`. One of them is rank 0.
std::optional<std::pair<Rank, Rank>> first_unheard(Rank n, const std::vector<std::pair<Rank, Rank>>& edges) {
  for (const bool to_others : {true, false}) {
    std::vector<std::vector<Rank>> next(static_cast<std::size_t>(n));
    for (const auto& [from, to] : edges)
      next[static_cast<std::size_t>(to_others ? from : to)].push_back(to_others ? to : from);
    std::vector<bool> reached(next.size());
    std::vector<Rank> open = {0};
    reached[0] = true;
    while (!open.empty()) {
      const Rank rank = open.back();
      open.pop_back();
      for (const Rank other : next[static_cast<std::size_t>(rank)])
        if (!reached[static_cast<std::size_t>(other)]) {
          reached[static_cast<std::size_t>(other)] = true;
          open.push_back(other);
        }
    }
    const auto missed = std::find(reached.begin(), reached.end(), false);
    if (missed == reached.end()) continue;
    const auto rank = static_cast<Rank>(missed - reached.begin());
    return to_others ? std::pair(Rank{0}, rank) : std::pair(rank, Rank{0});
  }
  return std::nullopt;
}

// Warns once, because programs that set another matching in every step intend this.
void warn_if_apart(Rank n, const std::vector<Entry>& entries, const std::string& name) {
  static std::atomic<bool> warned{false};
  if (warned) return;
  std::vector<std::pair<Rank, Rank>> edges;
  for (const Entry& entry : entries)
    if (entry.receiver != entry.sender && entry.weight != 0) edges.emplace_back(entry.sender, entry.receiver);
  const auto unheard = first_unheard(n, edges);
  if (!unheard || warned.exchange(true)) return;
  record::log(LogLevel::normal, "the graph of " + name + " is not connected: nothing of rank " +
                                    std::to_string(unheard->first) + " ever reaches rank " +
                                    std::to_string(unheard->second) +
                                    ", so the ranks will not agree on their mean while it is the topology");
}

/// A static schedule with the program's own weights, whatever they sum to; equal names mean equal weights.
std::shared_ptr<Schedule> from_weights(Rank n, const Entries& given, const std::string& name, bool push) {
  const auto& [receivers, senders, weights] = given;
  std::vector<Entry> list;
  for (std::size_t i = 0; i < weights.size(); ++i)
    list.push_back({receivers[i], senders[i], Lane::a, weights[i]});
  auto schedule = schedule_from_weights(n, list, {.push = push, .as_is = true}, name);
  warn_if_apart(n, list, name);
  schedule->set_name(name);
  return schedule;
}

/// Sets this rank's exchange from now on, with the program's own weights.
void set_exchange(SettableSchedule& self, double self_weight, const std::map<Rank, double>& sources,
                  const std::map<Rank, double>& destinations, const std::vector<Rank>& group) {
  Exchange exchange;
  exchange.self_weight = self_weight;
  for (const auto& [rank, weight] : sources) exchange.add_source(rank, weight);
  for (const auto& [rank, scale] : destinations) exchange.add_destination(rank, scale);
  if (group.size() > 1) {
    const auto count = static_cast<std::int64_t>(group.size());
    exchange.group = {0, 1, count, 1, std::make_shared<const std::vector<Rank>>(group)};
  }
  self.set(std::move(exchange));
}

}  // namespace

void bind_topology(py::module_& module) {
  py::class_<Schedule, std::shared_ptr<Schedule>>(module, "Schedule",
                                                  "Which ranks exchange, by step and rank.")
      .def_property_readonly("name", &Schedule::name)
      .def_property_readonly("size", &Schedule::size)
      .def_property_readonly("period", &Schedule::period)
      .def_property_readonly("random", &Schedule::random)
      .def_property_readonly("two_block",
                             [](const Schedule& self) { return self.mixing() == Mixing::two_block; })
      .def_property_readonly("push_sum",
                             [](const Schedule& self) { return self.mixing() == Mixing::push_sum; })
      .def("entries", &entries, py::arg("step") = 0, py::arg("block_b") = false,
           "(receivers, senders, weights) of one step's matrix.")
      .def("lanes", &lanes, py::arg("step") = 0, py::arg("block_b") = false,
           "Which block of the sender each entry is for: 0 for a, 1 for b.")
      .def(
          "exchange",
          [](const Schedule& self, Step step, Rank rank) {
            const Exchange one = self.exchange(step, rank);
            py::dict sources;
            for (const Source& source : one.sources) sources[py::int_(source.rank)] = source.weight;
            std::vector<Rank> destinations;
            for (const Destination& to : one.destinations) destinations.push_back(to.rank);
            std::vector<Rank> group;
            for (std::int64_t i = 0; i < one.group.size(); ++i) group.push_back(one.group[i]);
            return py::make_tuple(one.self_weight, sources, destinations, group);
          },
          py::arg("step"), py::arg("rank"),
          "(self weight, {source: weight}, destinations, group) of one rank's step.");
  module.def(
      "make_schedule",
      [](const std::string& spec, Rank n, std::uint64_t seed) {
        return std::const_pointer_cast<Schedule>(make_schedule(spec, n, seed));
      },
      py::arg("spec"), py::arg("n"), py::arg("seed") = 0);
  py::class_<SettableSchedule, Schedule, std::shared_ptr<SettableSchedule>>(
      module, "SettableSchedule",
      "A schedule that the program sets: the last exchange set holds until the next.")
      .def(py::init<Rank, Rank>(), py::arg("n"), py::arg("rank"))
      .def("set", &set_exchange, py::arg("self_weight"), py::arg("sources"), py::arg("destinations"),
           py::arg("group") = std::vector<Rank>())
      .def(
          "set_from",
          [](SettableSchedule& self, const Schedule& other, Step step, Rank rank) {
            self.set(other.exchange(step, rank));
          },
          "As another schedule would have it in one step.");
  module.def(
      "schedule_address",
      [](const std::shared_ptr<Schedule>& schedule) {
        // Keeps the schedule alive until the next call; starling._torch reads the address at once.
        static std::shared_ptr<Schedule> lent;
        lent = schedule;
        return reinterpret_cast<std::uintptr_t>(&lent);
      },
      "For starling._torch.");
  module.def(
      "hierarchical_schedule",
      [](const std::shared_ptr<Schedule>& outer, Rank local) { return hierarchical_schedule(outer, local); },
      "The mean over the ranks of every machine, then `outer` between machines.");
  module.def("schedule_from_weights", &from_weights, py::arg("n"), py::arg("entries"), py::arg("name"),
             py::arg("push") = false);
}

}  // namespace starling::python
