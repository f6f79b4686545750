#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "starling/base/error.h"
#include "starling/base/integer.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

/// On a circulant graph all ranks have the same list of receivers, up to rotation.
class OnePeerOfCirculant final : public Circulant {
 public:
  explicit OnePeerOfCirculant(const Circulant& of) : Circulant(of.size()) {
    Exchange row;
    of.round(0, row);
    for (const Source& source : row.sources) offsets_.push_back(source.rank);
    // Receivers by (j - i) mod n ascending: a rank that receives from i + offset is at n - offset.
    std::sort(offsets_.rbegin(), offsets_.rend());
  }
  Step period() const override { return std::max<Step>(1, static_cast<Step>(offsets_.size())); }

 private:
  void fill_round(Step step, Exchange& out) const override {
    if (offsets_.empty()) return;
    out.self_weight = 0.5;
    out.add_source(offsets_[static_cast<std::size_t>(step % period())], 0.5);
  }
  std::vector<Rank> offsets_;
};

class OnePeerOf final : public Schedule {
 public:
  explicit OnePeerOf(std::shared_ptr<const Graph> graph) : Schedule(graph->size()), graph_(std::move(graph)) {
    std::vector<Rank> list;
    start_.push_back(0);
    for (Rank i = 0; i < size(); ++i) {
      list.clear();
      graph_->append_out(i, list);
      std::sort(list.begin(), list.end(),
                [&](Rank a, Rank b) { return sub_mod(a, i, size()) < sub_mod(b, i, size()); });
      order_.insert(order_.end(), list.begin(), list.end());
      start_.push_back(order_.size());
      if (period_ > 0 && !list.empty()) period_ = std::lcm(period_, static_cast<Step>(list.size()));
      if (period_ > kLongestPeriod) period_ = 0;
    }
  }
  Step period() const override { return period_; }

 private:
  static constexpr Step kLongestPeriod = Step{1} << 40;

  // The rank that rank i sends to at this step; i if it sends to none.
  Rank receiver_of(Rank i, Step step) const {
    const std::size_t first = start_[static_cast<std::size_t>(i)];
    const std::size_t degree = start_[static_cast<std::size_t>(i) + 1] - first;
    return degree == 0 ? i : order_[first + static_cast<std::size_t>(step) % degree];
  }

  void fill(Step step, Rank rank, Exchange& out) const override {
    const Rank receiver = receiver_of(rank, step);
    if (receiver != rank) out.add_destination(receiver);
    thread_local std::vector<Rank> senders;
    senders.clear();
    graph_->append_in(rank, senders);
    std::erase_if(senders, [&](Rank j) { return receiver_of(j, step) != rank; });
    out.self_weight = 1.0 / (static_cast<double>(senders.size()) + 1);
    for (const Rank j : senders) out.add_source(j, out.self_weight);
  }

  std::shared_ptr<const Graph> graph_;
  std::vector<std::size_t> start_;
  std::vector<Rank> order_;  // the receivers of each rank, in the order of sending
  Step period_ = 1;
};

}  // namespace

Family one_peer_of() {
  return {
      .name = "one-peer-of",
      .summary = "the receivers of any static graph, one a round in turn",
      .parameters = {{"graph", "", "a static topology's name", ParameterKind::topology}},
      .make = [](const Parameters& parameters, const TopologySetting& setting) -> std::shared_ptr<Schedule> {
        const SchedulePtr of = make_schedule(parameters.spec("graph"), setting);
        if (of->period() != 1 || of->random())
          throw InvalidArgument(
              fmt::format("one-peer-of: {} changes with the step; a static graph is needed", of->name()));
        if (const auto* circulant = dynamic_cast<const Circulant*>(of.get()))
          return std::make_shared<OnePeerOfCirculant>(*circulant);
        return std::make_shared<OnePeerOf>(graph_of(*of, /*as_undirected=*/false));
      },
      .changing = true};
}

}  // namespace starling::topology::family
