#include "bench/cases.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "starling/base/median.h"
#include "starling/report/number_text.h"

namespace starling::bench {
namespace {

using enum Contender;

constexpr std::size_t kSmall = 1000;  // bytes
constexpr std::size_t kMegabyte = 1'000'000;

// The number of batches, and of messages of this size per batch.
struct Effort {
  int batches;
  int per_batch;
};

Effort effort(std::size_t bytes, bool crowded) {
  if (bytes < kMegabyte) return crowded ? Effort{9, 300} : Effort{15, 2000};
  if (bytes < 10 * kMegabyte) return {15, 40};
  if (bytes < 50 * kMegabyte) return {9, 4};
  return {5, 2};
}

class List {
 public:
  List(const std::vector<int>& cpus, bool quick) : cpus_(cpus), quick_(quick) {}

  void add(const std::string& name, Operation operation, int ranks, std::size_t bytes,
           std::vector<Contender> contenders, const Bars& bars) {
    const Effort full = effort(bytes, static_cast<std::size_t>(ranks) > cpus_.size());
    const Effort chosen = quick_ ? Effort{2, 2} : full;
    if (quick_) bytes = std::max(kSmall, bytes / 1000);
    CommCase& added = append(name, CommCase::Kind::operation, ranks);
    added.work.operation = operation;
    added.work.elements = bytes / sizeof(float);
    added.work.batches = chosen.batches;
    added.work.per_batch = chosen.per_batch;
    added.contenders = std::move(contenders);
    added.bars = bars;
  }
  void add(const std::string& name, CommCase::Kind kind, int ranks, double most) {
    CommCase& added = append(name, kind, ranks);
    added.contenders = {starling};
    added.bars.most = most;
  }
  std::vector<CommCase> take() { return std::move(cases_); }

 private:
  CommCase& append(const std::string& name, CommCase::Kind kind, int ranks) {
    CommCase& added = cases_.emplace_back();
    added.name = name;
    added.kind = kind;
    added.work.ranks = ranks;
    added.work.cpus = cpus_;
    return added;
  }

  std::vector<int> cpus_;
  bool quick_;
  std::vector<CommCase> cases_;
};

}  // namespace

std::vector<CommCase> comm_cases(const std::vector<int>& cpus, bool quick) {
  List list(cpus, quick);
  for (const std::size_t megabytes : {1, 16, 100}) {
    const bool large = megabytes == 100;
    std::vector<Contender> in_place = {starling, ceiling, mpi};
    if (large) in_place.push_back(gloo);
    list.add("one-peer", Operation::one_peer, 2, megabytes * kMegabyte, in_place,
             {.ceiling = 0.8, .mpi = 1.3, .gloo = large ? 2.5 : 0});
    list.add("one-peer zero-copy", Operation::one_peer, 2, megabytes * kMegabyte,
             {zero_copy, zero_copy_ceiling, mpi}, {.ceiling = 0.8, .mpi = 2});
  }
  list.add("one-peer", Operation::one_peer, 2, kSmall, {starling, mpi}, {.mpi = 0.5});
  for (const int ranks : {4, 8})
    list.add("one-peer", Operation::one_peer, ranks, kSmall, {starling, mpi}, {.mpi = 1});
  list.add("exponential", Operation::exponential, 4, 100 * kMegabyte, {starling, ceiling, mpi}, {.mpi = 1.5});
  for (const int ranks : {2, 4})
    list.add("allreduce", Operation::allreduce, ranks, 100 * kMegabyte, {starling, mpi, gloo},
             {.mpi = 1, .gloo = 1.3});
  list.add("window put", Operation::window_put, 4, 16 * kMegabyte, {starling, ceiling}, {.ceiling = 1 / 1.5});
  list.add("window put+update", Operation::window_step, 4, 16 * kMegabyte, {starling, ceiling, mpi},
           {.ceiling = 0.9});
  for (const std::size_t megabytes : {16, 100})
    for (const int ranks : {2, 4})
      list.add("relay", Operation::relay, ranks, megabytes * kMegabyte, {starling, ceiling},
               {.ceiling = 0.9});
  list.add("waiting", CommCase::Kind::idle, 2, 0.02);
  list.add("a rank is stopped", CommCase::Kind::stopped, 3, 1.5);
  list.add("start-up", CommCase::Kind::start_up, 16, 0.5);
  return list.take();
}

std::string CommCase::label() const {
  std::string text = fmt::format("{} n={}", name, work.ranks);
  if (kind != Kind::operation) return text;
  std::string size = human_bytes(static_cast<double>(bytes()));
  std::erase(size, ' ');
  return text + ' ' + size;
}

std::string CommCase::bars_text() const {
  std::vector<std::string> parts;
  if (bars.ceiling > 0) parts.push_back(fmt::format("{:.0f} % of ceiling", bars.ceiling * 100));
  if (bars.mpi > 0) parts.push_back(fmt::format("{}x MPI", bars.mpi));
  if (bars.gloo > 0) parts.push_back(fmt::format("{}x gloo", bars.gloo));
  if (bars.most > 0)
    parts.push_back(kind != Kind::start_up ? fmt::format("under {:.0f} %", bars.most * 100)
                                           : "under " + human_time(bars.most));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::optional<double> CommResult::speed_against(Contender peer) const {
  if (of(ours()).empty() || of(peer).empty()) return std::nullopt;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of(peer).size(); ++i) ratios.push_back(of(peer)[i] / of(ours()).at(i));
  return median(ratios);
}

std::optional<double> CommResult::ratio_of_medians(Contender peer) const {
  if (of(ours()).empty() || of(peer).empty()) return std::nullopt;
  return median(of(peer)) / median(of(ours()));
}

std::optional<double> CommResult::share_of_ceiling() const {
  return speed_against(ours() == zero_copy ? zero_copy_ceiling : ceiling);
}

std::optional<bool> CommResult::met() const {
  bool unknown = false;
  bool missed = failed;
  const auto check_bar = [&](double bar, const std::optional<double>& value, bool at_most) {
    if (bar <= 0) return;
    if (!value) {
      unknown = true;
    } else {
      missed = missed || (at_most ? *value >= bar : *value < bar);
    }
  };
  check_bar(what.bars.ceiling, share_of_ceiling(), false);
  check_bar(what.bars.mpi, speed_against(mpi), false);
  check_bar(what.bars.gloo, speed_against(gloo), false);
  const bool measured = !of(ours()).empty();
  check_bar(what.bars.most, measured ? std::optional(median(of(ours()))) : std::nullopt, true);
  if (missed) return false;
  if (unknown) return std::nullopt;
  return true;
}

}  // namespace starling::bench
