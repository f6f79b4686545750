#include "starling/simulate/one_sided.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "starling/kernel/combine.h"
#include "starling/kernel/reduce.h"
#include "starling/simulate/channel.h"

namespace starling::simulate {

// The neighbors in any step of the period.
SimulatedOneSided::SimulatedOneSided(SimulatedChannel& channel, Buffer block, Start start)
    : channel_(channel), block_(block) {
  const SchedulePtr schedule = channel.schedule();
  const Rank self = channel.rank();
  std::set<Rank> from;
  std::set<Rank> to;
  for (Step step = 0; step < std::max<Step>(1, schedule->period()); ++step) {
    const Exchange exchange = schedule->exchange(step, self);
    for (std::int64_t i = 0; i < exchange.group.size(); ++i)
      if (exchange.group[i] != self) {
        from.insert(exchange.group[i]);
        to.insert(exchange.group[i]);
      }
    for (const Source& source : exchange.sources) from.insert(source.rank);
    for (const Destination& destination : exchange.destinations) to.insert(destination.rank);
  }
  sources_.assign(from.begin(), from.end());
  destinations_.assign(to.begin(), to.end());
  const std::byte* bytes = block.host_bytes();
  for (const Rank source : sources_) {
    Slot& slot = slots_[source];
    slot.full = start == Start::copies;
    if (slot.full) slot.value = {{bytes, bytes + block.bytes()}, 1, 0};
  }
}

void SimulatedOneSided::deposit(const Weights& destinations, bool add) {
  const TimeModel& time = channel_.network().options().time;
  const std::size_t bytes = block_.bytes();
  double leaves = channel_.clock();
  for (const auto& [to, weight] : destinations) {
    const ModelledLink& link = time.link_between(channel_.rank(), to);
    leaves += static_cast<double>(bytes) * link.seconds_per_byte;
    Deposit made{
        leaves + link.latency, add, {std::vector<std::byte>(bytes), weight * p_, channel_.progress()}};
    const Term term{block_, weight};
    combine(block_.dtype, made.value.bytes.data(), {&term, 1}, block_.count);
    channel_.network()[to].own_window()->slots_.at(channel_.rank()).under_way.push_back(std::move(made));
    channel_.count_sent(bytes);
  }
}

void SimulatedOneSided::keep_share(double self_weight) {
  if (self_weight == 1) return;
  if (block_.count > 0) scale(block_, self_weight);
  p_ *= self_weight;
}

void SimulatedOneSided::put(const Weights& destinations, double self_weight) {
  deposit(destinations, false);
  keep_share(self_weight);
}

void SimulatedOneSided::accumulate(const Weights& destinations, double self_weight) {
  deposit(destinations, true);
  keep_share(self_weight);
}

void SimulatedOneSided::load(Buffer out) {
  std::memcpy(out.host_data(), shared_.bytes.data(), shared_.bytes.size());
}

void SimulatedOneSided::store(ConstBuffer value) {
  const std::byte* bytes = value.host_bytes();
  shared_ = {{bytes, bytes + block_.bytes()}, p_, channel_.progress()};
}

void SimulatedOneSided::add(ConstBuffer increment) {
  const Term terms[] = {{shared_.bytes.data(), 1}, {increment, 1}};
  combine(block_.dtype, shared_.bytes.data(), terms, block_.count);
  shared_.stamp = channel_.progress();
}

// Takes a round trip with a block in each direction.
void SimulatedOneSided::average_with(Rank other, ConstBuffer mine, double weight, Buffer moved) {
  SimulatedChannel& them = channel_.network()[other];
  Value& theirs = them.own_window()->shared_;
  const Term way[] = {{mine, weight}, {theirs.bytes.data(), -weight}};
  combine(moved, way);
  const Term terms[] = {{theirs.bytes.data(), 1}, {moved, 1}};
  combine(block_.dtype, theirs.bytes.data(), terms, block_.count);
  channel_.note_age(channel_.progress() - theirs.stamp);
  const TimeModel& time = channel_.network().options().time;
  const auto bytes = static_cast<double>(theirs.bytes.size());
  for (const ModelledLink& link :
       {time.link_between(channel_.rank(), other), time.link_between(other, channel_.rank())})
    channel_.pass_time(link.latency + bytes * link.seconds_per_byte);
  channel_.count_sent(theirs.bytes.size());
  them.count_sent(theirs.bytes.size());
}

void SimulatedOneSided::take_in(Slot& slot) {
  while (!slot.under_way.empty() && slot.under_way.front().arrival <= channel_.clock()) {
    Deposit& one = slot.under_way.front();
    if (one.add && slot.full) {
      const Term terms[] = {{one.value.bytes.data(), 1}, {slot.value.bytes.data(), 1}};
      combine(block_.dtype, one.value.bytes.data(), terms, block_.count);
      one.value.p += slot.value.p;
    }
    slot.value = std::move(one.value);
    slot.full = true;
    slot.under_way.pop_front();
  }
}

void SimulatedOneSided::update(double self_weight, const Weights& sources, bool reset) {
  std::vector<Term> terms = {{block_, self_weight}};
  double p = self_weight * p_;
  for (const auto& [source, weight] : sources) {
    Slot& slot = slots_.at(source);
    take_in(slot);
    if (!slot.full) continue;
    terms.emplace_back(slot.value.bytes.data(), weight);
    p += weight * slot.value.p;
    channel_.note_age(channel_.progress() - slot.value.stamp);
    if (reset) slot.full = false;
  }
  combine(block_, terms);
  p_ = p;
}

void SimulatedOneSided::clear() {
  for (auto& [source, slot] : slots_) {
    slot.full = false;
    slot.under_way.clear();
  }
}

}  // namespace starling::simulate
