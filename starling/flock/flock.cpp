#include "starling/flock/flock.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fmt/format.h>

#include "starling/flock/operation.h"
#include "starling/kernel/combine.h"
#include "starling/topology/registry.h"

namespace starling {

struct Flock::State {
  explicit State(std::shared_ptr<Fabric> given) : mailbox(std::make_shared<Mailbox>(std::move(given))) {}

  std::shared_ptr<Mailbox> mailbox;
  std::mutex mutex;  // of what follows
  SchedulePtr schedule;
  std::uint64_t schedule_hash = 0;
  Step step = 0;
  std::chrono::nanoseconds timeout = std::chrono::seconds(300);

  Fabric& fabric() const { return mailbox->fabric(); }

  std::shared_ptr<Operation> operation(const std::string& name, Step at_step) {
    mailbox->raise_complaints();
    const std::lock_guard lock(mutex);
    return std::make_shared<Operation>(mailbox, name, at_step, timeout);
  }

  void check_peer(Rank peer, const std::string& name) const {
    if (peer < 0 || peer >= fabric().size())
      throw InvalidArgument(fmt::format("{}: rank {} is not one of the {} ranks 0..{}", name, peer,
                                        fabric().size(), fabric().size() - 1));
  }

  // What is written into the outgoing memory goes to all destinations at once.
  void post(Outgoing message, ConstBlock shape, std::span<const Rank> to, std::uint64_t name,
            std::uint64_t schedule_in_header, Step at_step) {
    MessageHeader header;
    header.name = name;
    header.count = shape.count;
    header.dtype = static_cast<std::uint8_t>(shape.dtype);
    header.schedule = schedule_in_header;
    header.step = at_step;
    // One fabric message carries one sequence number; destinations whose numbers differ get copies.
    std::map<std::uint64_t, std::vector<Rank>> by_sequence;
    for (const Rank peer : to) by_sequence[mailbox->next_to(peer, name)].push_back(peer);
    while (by_sequence.size() > 1) {
      const auto first = by_sequence.begin();
      Outgoing copy = fabric().reserve(message.bytes().size());
      std::copy(message.bytes().begin(), message.bytes().end(), copy.bytes().begin());
      header.sequence = first->first;
      fabric().post(std::move(copy), header, first->second);
      by_sequence.erase(first);
    }
    if (by_sequence.empty()) return;
    header.sequence = by_sequence.begin()->first;
    fabric().post(std::move(message), header, by_sequence.begin()->second);
  }

  Outgoing filled(ConstBlock in) const {
    Outgoing message = fabric().reserve(in.count * size_of(in.dtype));
    if (in.count > 0) std::memcpy(message.bytes().data(), in.data, message.bytes().size());
    return message;
  }

  Expectation expectation(Rank source, ConstBlock shape, std::uint64_t name, std::uint64_t schedule_in_header,
                          Step at_step) const {
    Expectation expected;
    expected.source = source;
    expected.sequence = mailbox->next_from(source, name);
    expected.name = name;
    expected.schedule = schedule_in_header;
    expected.count = shape.count;
    expected.step = at_step;
    expected.dtype = static_cast<std::uint8_t>(shape.dtype);
    return expected;
  }
};

namespace {

void check_shapes(ConstBlock in, ConstBlock out, const std::string& name) {
  if (in.dtype != out.dtype || in.count != out.count)
    throw InvalidArgument(fmt::format("{}: the input has {} x {}, the output {} x {}", name, in.count,
                                      starling::name(in.dtype), out.count, starling::name(out.dtype)));
}

std::vector<Rank> others(Rank rank, Rank size) {
  std::vector<Rank> list;
  for (Rank r = 0; r < size; ++r)
    if (r != rank) list.push_back(r);
  return list;
}

void copy_elements(MutableBlock out, const void* from) {
  if (out.count > 0 && out.data != from) std::memmove(out.data, from, out.count * size_of(out.dtype));
}

}  // namespace

Flock::Flock(std::shared_ptr<Fabric> fabric) : state_(std::make_shared<State>(std::move(fabric))) {
  set_schedule("exponential");
}

Rank Flock::rank() const {
  return state_->fabric().rank();
}
Rank Flock::size() const {
  return state_->fabric().size();
}

void Flock::set_schedule(SchedulePtr schedule) {
  if (schedule->size() != size())
    throw InvalidArgument(
        fmt::format("{} is for {} ranks, this flock has {}", schedule->name(), schedule->size(), size()));
  if (schedule->mixing() == Mixing::two_block)
    throw InvalidArgument(fmt::format(
        "{} mixes two blocks per rank, which neighbor_allreduce cannot; base(k=1) is exact with one",
        schedule->name()));
  const std::lock_guard lock(state_->mutex);
  state_->schedule_hash = hash_name(schedule->name());
  state_->schedule = std::move(schedule);
  state_->step = 0;
}

void Flock::set_schedule(const std::string& spec) {
  set_schedule(make_schedule(spec, size()));
}

SchedulePtr Flock::schedule() const {
  const std::lock_guard lock(state_->mutex);
  return state_->schedule;
}

Step Flock::step() const {
  const std::lock_guard lock(state_->mutex);
  return state_->step;
}

void Flock::set_timeout(std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) throw InvalidArgument("the timeout must be longer than nothing");
  const std::lock_guard lock(state_->mutex);
  state_->timeout = timeout;
}

std::vector<Rank> Flock::everybody() const {
  std::vector<Rank> all;
  for (Rank r = 0; r < size(); ++r) all.push_back(r);
  return all;
}

Flock::Neighbors Flock::next_neighbors() {
  const std::lock_guard lock(state_->mutex);
  const Exchange exchange = state_->schedule->exchange(state_->step++, rank());
  Neighbors neighbors;
  for (std::int64_t i = 0; i < exchange.group.size(); ++i)
    if (exchange.group[i] != rank()) {
      neighbors.sources.push_back(exchange.group[i]);
      neighbors.destinations.push_back(exchange.group[i]);
    }
  for (const Source& source : exchange.sources) neighbors.sources.push_back(source.rank);
  for (const Destination& destination : exchange.destinations)
    neighbors.destinations.push_back(destination.rank);
  return neighbors;
}

Pending Flock::start_neighbor_allreduce(ConstBlock in, MutableBlock out, const std::string& name) {
  check_shapes(in, out, name);
  Exchange exchange;
  Step step = 0;
  std::uint64_t schedule = 0;
  {
    const std::lock_guard lock(state_->mutex);
    step = state_->step++;
    schedule = state_->schedule_hash;
    state_->schedule->exchange(step, rank(), exchange);
  }
  const auto operation = state_->operation(name, step);
  const std::uint64_t hash = hash_name(name);
  const auto state = state_;

  // Mixes `from` with what this step's sources hold, into out.
  const auto mix = [state, operation, exchange, out, hash, schedule, step](ConstBlock from) {
    std::vector<Rank> destinations;
    for (const Destination& destination : exchange.destinations) destinations.push_back(destination.rank);
    if (!destinations.empty()) state->post(state->filled(from), from, destinations, hash, schedule, step);
    std::vector<Expectation> expected;
    for (const Source& source : exchange.sources)
      expected.push_back(state->expectation(source.rank, from, hash, schedule, step));
    operation->expect(std::move(expected), [out, from, exchange](Operation::Arrivals& arrivals) {
      if (arrivals.empty() && exchange.self_weight == 1) {
        copy_elements(out, from.data);
        return;
      }
      std::vector<Term> terms = {{from.data, exchange.self_weight}};
      for (std::size_t i = 0; i < arrivals.size(); ++i)
        terms.push_back({arrivals[i].bytes().data(), exchange.sources[i].weight});
      combine(out.dtype, out.data, terms, out.count);
    });
  };
  if (exchange.group.size() <= 1) {
    mix(in);
    return Pending(operation);
  }
  // First the mean over the group: everybody sends to everybody in it, and all combine in the group's order.
  std::vector<Rank> members;
  for (std::int64_t i = 0; i < exchange.group.size(); ++i) members.push_back(exchange.group[i]);
  std::vector<Rank> rest;
  std::copy_if(members.begin(), members.end(), std::back_inserter(rest), [&](Rank r) { return r != rank(); });
  const std::uint64_t group_hash = hash_name(name + "/group");
  state->post(state->filled(in), in, rest, group_hash, schedule, step);
  std::vector<Expectation> expected;
  for (const Rank member : rest)
    expected.push_back(state->expectation(member, in, group_hash, schedule, step));
  operation->expect(std::move(expected), [members, mix, in, out, me = rank()](Operation::Arrivals& arrivals) {
    std::vector<Term> terms;
    const double share = 1.0 / static_cast<double>(members.size());
    std::size_t next = 0;
    for (const Rank member : members)
      terms.push_back({member == me ? in.data : arrivals[next++].bytes().data(), share});
    combine(out.dtype, out.data, terms, out.count);
    mix(out);
  });
  return Pending(operation);
}

Pending Flock::start_neighbor_allreduce(ConstBlock in, MutableBlock out, const Weighted& weights,
                                        const std::string& name) {
  check_shapes(in, out, name);
  for (const auto& side : {weights.sources, weights.destinations})
    for (const auto& [peer, weight] : side) {
      state_->check_peer(peer, name);
      if (peer == rank())
        throw InvalidArgument(
            fmt::format("{}: rank {} is this rank itself; its weight is self_weight", name, peer));
    }
  const auto operation = state_->operation(name, 0);
  const std::uint64_t hash = hash_name(name);
  // Destinations with the same weight share one message.
  std::map<double, std::vector<Rank>> by_weight;
  for (const auto& [peer, weight] : weights.destinations) by_weight[weight].push_back(peer);
  for (const auto& [weight, peers] : by_weight) {
    Outgoing message = state_->filled(in);
    if (weight != 1) scale(in.dtype, message.bytes().data(), weight, in.count);
    state_->post(std::move(message), in, peers, hash, 0, 0);
  }
  std::vector<Expectation> expected;
  std::vector<double> theirs;
  for (const auto& [peer, weight] : weights.sources) {
    expected.push_back(state_->expectation(peer, in, hash, 0, 0));
    theirs.push_back(weight);
  }
  operation->expect(std::move(expected),
                    [in, out, theirs, own = weights.self_weight](Operation::Arrivals& arrivals) {
                      std::vector<Term> terms = {{in.data, own}};
                      for (std::size_t i = 0; i < arrivals.size(); ++i)
                        terms.push_back({arrivals[i].bytes().data(), theirs[i]});
                      combine(out.dtype, out.data, terms, out.count);
                    });
  return Pending(operation);
}

Pending Flock::start_allreduce(ConstBlock in, MutableBlock out, Reduction reduction, bool average,
                               const std::string& name) {
  check_shapes(in, out, name);
  if (average && !is_floating(in.dtype))
    throw InvalidArgument(fmt::format("{}: the average of {} is not one; use a floating type, or the sum",
                                      name, starling::name(in.dtype)));
  const auto operation = state_->operation(name, 0);
  const auto state = state_;
  const Rank me = rank();
  const Rank n = size();
  if (n == 1) {
    operation->expect({}, [in, out](Operation::Arrivals&) { copy_elements(out, in.data); });
    return Pending(operation);
  }
  const auto peers = others(me, n);
  const std::uint64_t hash = hash_name(name);
  const std::size_t element = size_of(in.dtype);
  // Rank r reduces the r-th slice, in rank order, so that every rank ends up with the same bits.
  const auto begin_of = [count = in.count, n](Rank r) {
    return count * static_cast<std::size_t>(r) / static_cast<std::size_t>(n);
  };

  state->post(state->filled(in), in, peers, hash, 0, 0);
  std::vector<Expectation> expected;
  for (const Rank peer : peers) expected.push_back(state->expectation(peer, in, hash, 0, 0));
  const std::uint64_t slice_hash = hash_name(name + "/slice");
  std::vector<Expectation> slices;
  for (const Rank peer : peers)
    slices.push_back(
        state->expectation(peer, {in.dtype, nullptr, begin_of(peer + 1) - begin_of(peer)}, slice_hash, 0, 0));

  operation->expect(std::move(expected), [=](Operation::Arrivals& arrivals) {
    const std::size_t begin = begin_of(me);
    const ConstBlock slice{in.dtype, nullptr, begin_of(me + 1) - begin};
    Outgoing message = state->fabric().reserve(slice.count * element);
    std::byte* sum = message.bytes().data();
    std::size_t next = 0;
    for (Rank r = 0; r < n; ++r) {
      const auto* theirs = r == me ? static_cast<const std::byte*>(in.data) : arrivals[next++].bytes().data();
      if (slice.count == 0) continue;
      if (r == 0) {
        std::memcpy(sum, theirs + begin * element, slice.count * element);
      } else {
        reduce(reduction, in.dtype, sum, theirs + begin * element, slice.count);
      }
    }
    if (average) scale(in.dtype, sum, 1.0 / n, slice.count);
    arrivals.clear();
    if (slice.count > 0)
      std::memcpy(static_cast<std::byte*>(out.data) + begin * element, sum, slice.count * element);
    state->post(std::move(message), slice, peers, slice_hash, 0, 0);
    operation->expect(slices, [=](Operation::Arrivals& done) {
      for (std::size_t i = 0; i < peers.size(); ++i)
        if (!done[i].bytes().empty())
          std::memcpy(static_cast<std::byte*>(out.data) + begin_of(peers[i]) * element,
                      done[i].bytes().data(), done[i].bytes().size());
    });
  });
  return Pending(operation);
}

Pending Flock::start_broadcast(MutableBlock block, Rank root, const std::string& name) {
  state_->check_peer(root, name);
  const auto operation = state_->operation(name, 0);
  // Everybody tells everybody which root it means: a handful of bytes, and different roots are an error on
  // all instead of a hang.
  const auto peers = others(rank(), size());
  const std::uint64_t hash = hash_name(name);
  const std::uint64_t root_hash = hash_name(name + "/root");
  const ConstBlock empty{block.dtype, nullptr, block.count};
  state_->post(state_->fabric().reserve(0), empty, peers, root_hash, 0, root);
  std::vector<Expectation> expected;
  for (const Rank peer : peers) expected.push_back(state_->expectation(peer, empty, root_hash, 0, root));
  if (rank() == root) {
    state_->post(state_->filled(block), block, peers, hash, 0, 0);
    operation->expect(std::move(expected), nullptr);
    return Pending(operation);
  }
  expected.push_back(state_->expectation(root, block, hash, 0, 0));
  operation->expect(std::move(expected), [block](Operation::Arrivals& arrivals) {
    copy_elements(block, arrivals.back().bytes().data());
  });
  return Pending(operation);
}

Pending Flock::start_recv(MutableBlock block, Rank from, const std::string& name) {
  state_->check_peer(from, name);
  const auto operation = state_->operation(name, 0);
  operation->expect(
      {state_->expectation(from, block, hash_name(name), 0, 0)},
      [block](Operation::Arrivals& arrivals) { copy_elements(block, arrivals[0].bytes().data()); });
  return Pending(operation);
}

void Flock::post(ConstBlock block, std::span<const Rank> to, const std::string& name) {
  for (const Rank peer : to) state_->check_peer(peer, name);
  state_->mailbox->raise_complaints();
  state_->post(state_->filled(block), block, to, hash_name(name), 0, 0);
}

void Flock::gather(ConstBlock in, const std::vector<Rank>& sources, const std::vector<Rank>& destinations,
                   const std::string& name, const std::function<void*(std::size_t elements)>& room) {
  const auto operation = state_->operation(name, 0);
  const std::uint64_t hash = hash_name(name);
  std::vector<Rank> to;
  std::copy_if(destinations.begin(), destinations.end(), std::back_inserter(to),
               [&](Rank r) { return r != rank(); });
  if (!to.empty()) state_->post(state_->filled(in), in, to, hash, 0, 0);
  std::vector<Expectation> expected;
  for (const Rank source : sources) {
    if (source == rank()) continue;
    expected.push_back(state_->expectation(source, in, hash, 0, 0));
    expected.back().any_count = true;
  }
  operation->expect(std::move(expected), [&, me = rank()](Operation::Arrivals& arrivals) {
    std::size_t total = 0;
    std::size_t next = 0;
    for (const Rank source : sources) total += source == me ? in.count : arrivals[next++].header().count;
    auto* at = static_cast<std::byte*>(room(total));
    next = 0;
    for (const Rank source : sources) {
      const std::size_t bytes = source == me ? in.count * size_of(in.dtype) : arrivals[next].bytes().size();
      const void* from = source == me ? in.data : arrivals[next++].bytes().data();
      if (bytes > 0) std::memcpy(at, from, bytes);
      at += bytes;
    }
  });
  Pending(operation).wait();
}

void Flock::barrier() {
  std::vector<std::uint8_t> nothing;
  start_allreduce(block_of(std::as_const(nothing)), block_of(nothing), Reduction::sum, false, "barrier")
      .wait();
}

}  // namespace starling
