#include "starling/flock/relay_sum.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/fabric/device_messages.h"
#include "starling/flock/errors.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/interleave.h"

namespace starling::flock {
namespace {

constexpr std::size_t kRelayChunk = 64 << 10;  // bytes
// A message of this length has left all caches by the time it is read.
constexpr std::size_t kPastTheCache = std::size_t{4} << 20;
// A deinterleaved part is short, so that the next cache lines are loading while these are summed.
constexpr std::size_t kSorted = 2 << 10;

// A header's detail holds the number of blocks in the mean and the sender's layout().
constexpr std::uint64_t kCounts = std::uint64_t{1} << 32;

std::uint64_t contributors_in(const Arrival& arrival) {
  return arrival.header().detail % kCounts;
}

/// A part of a block in the cache, with each tree's elements together.
class Sorted {
 public:
  Sorted(std::size_t trees, DType dtype) : element_(size_of(dtype)), rows_(kSorted / element_ / trees) {
    memory_.resize(trees * rows_ * element_);
    for (std::size_t tree = 0; tree < trees; ++tree)
      parts_.push_back(memory_.data() + tree * rows_ * element_);
  }

  std::size_t room() const { return rows_ * parts_.size(); }
  std::byte* operator[](std::size_t tree) const { return parts_[tree]; }
  void read(const void* block, std::size_t from, std::size_t count) const {
    deinterleave(parts_, static_cast<const std::byte*>(block) + from * element_, count, element_);
  }
  void write(void* block, std::size_t from, std::size_t count) const {
    interleave(static_cast<std::byte*>(block) + from * element_, parts_, count, element_);
  }

 private:
  std::size_t element_;
  std::size_t rows_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> parts_;
};

// How many of `count` interleaved elements belong to `tree`.
std::size_t share(std::size_t count, std::size_t tree, std::size_t trees) {
  return (count + trees - 1 - tree) / trees;
}

}  // namespace

RelaySum::RelaySum(std::shared_ptr<Relay::State> state, StepPlan plan, const Piece& block)
    : Operation(MessageKind::relay, state->flock, *state->topic, plan.step, block.in.memory),
      state_(std::move(state)),
      plan_(std::move(plan)),
      block_(block) {
  // A device that waits has no patience.
  if (state_->options.patience == std::chrono::nanoseconds::max()) leave_payloads_to_device(block.in.memory);
  const auto trees = static_cast<std::size_t>(plan_.over->period());
  for (std::size_t tree = 0; tree < trees; ++tree) {
    tree_parts_.push_back(part_of_tree(tree, trees));
    const Exchange exchange = plan_.over->exchange(static_cast<Step>(tree), flock_->self());
    for (const Source& source : exchange.sources) tree_parts_.back().neighbors.push_back(source.rank);
  }
}

RelaySum::RelaySum(std::shared_ptr<Relay::State> state)
    : Operation(MessageKind::relay, state->flock, *state->topic, std::nullopt, MemoryKind::host),
      state_(std::move(state)),
      only_receives_(true) {}

RelaySum::TreePart RelaySum::part_of_tree(std::size_t tree, std::size_t trees) const {
  const std::size_t count = block_.in.count;
  if (!state_->options.contiguous) return {0, share(count, tree, trees), {}};
  const std::size_t first = count * tree / trees;
  return {first, count * (tree + 1) / trees - first, {}};
}

std::uint64_t RelaySum::layout() const {
  return (plan_.schedule + (state_->options.contiguous ? 1 : 0)) % kCounts;
}

// A rank with other trees usually has other neighbors, but different divisions may give equal lengths.
void RelaySum::check_layout() const {
  for (const Awaited& one : awaited_)
    if (one.arrival && one.arrival.header().detail / kCounts != layout())
      throw Mismatch(fmt::format(
          "{}: rank {} relays over other trees than rank {}, or divides blocks among them differently",
          topic_.text, one.expectation.source, flock_->self()));
}

Expectation RelaySum::expected_from(Rank neighbor, std::size_t tree) {
  Expectation expected = expectation(neighbor, flock_->mailbox.next_from(topic_, neighbor), block_.in.dtype,
                                     tree_parts_[tree].count, block_.in.memory);
  expected.any_detail = true;  // the number of blocks varies
  expected.epoch = plan_.epoch;
  return expected;
}

void RelaySum::start() {
  if (!only_receives_) begin_step();
  if (!only_receives_ && !state_->options.overlap) {
    post_messages();
    state_->received.clear();
    for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree)
      for (const Rank neighbor : tree_parts_[tree].neighbors) {
        await(expected_from(neighbor, tree));
        awaited_tree_.push_back(tree);
      }
    return;
  }
  if (!state_->in_flight.empty()) state_->received.clear();
  for (const Relay::State::InFlight& in_flight : state_->in_flight) {
    await(in_flight.expectation);
    awaited_tree_.push_back(in_flight.tree);
  }
  state_->in_flight.clear();
}

void RelaySum::begin_step() {
  // The live members have new trees; messages over the old ones do not apply to them.
  if (state_->epoch != plan_.epoch) {
    state_->received.clear();
    for (const Relay::State::InFlight& in_flight : state_->in_flight)
      flock_->mailbox.refuse(in_flight.expectation);
    state_->in_flight.clear();
    state_->filled = true;  // the reference is too old by now
    state_->epoch = plan_.epoch;
  }
  if (state_->filled) state_->reference = {};
  if (state_->options.missing == Missing::reference && !state_->filled && state_->reference.bytes() == 0)
    state_->reference = KeptElements(block_.in, block_.in.memory);
  state_->reference.move_to(block_.in.memory);
  for (auto& [from, received] : state_->received) received.restored.move_to(block_.in.memory);
  for (std::size_t tree = 0; gathers() && tree < tree_parts_.size(); ++tree)
    gathered_.push_back(gathered(block_.in, tree));
}

ConstBuffer RelaySum::own_part(std::size_t tree) const {
  return gathers() ? gathered_[tree].buffer()
                   : block_.in.part(tree_parts_[tree].first, tree_parts_[tree].count);
}

kernel::OwnedBuffer RelaySum::gathered(ConstBuffer block, std::size_t tree) const {
  kernel::OwnedBuffer part(block.dtype, tree_parts_[tree].count, block.memory);
  if (tree < block.count)
    arithmetic_in(block.memory)
        .copy_strided(part.buffer(), 1, block.part(tree, block.count - tree), tree_parts_.size());
  return part;
}

/// A message to a neighbor: the mean of this rank's block and of the other neighbors' last means. Means are
/// sent, not sums: equal blocks do not change, and float16 does not overflow.
struct RelaySum::OutgoingMean {
  Outgoing message;
  std::vector<ReceivedMean> received = {};
  std::uint64_t count = 1;

  void write(ConstBuffer own, std::size_t from, std::vector<Term>& terms) const {
    const auto all = static_cast<double>(count);
    terms.assign(1, {own, 1 / all});
    for (const ReceivedMean& one : received)
      terms.push_back(one.weighted(static_cast<double>(one.blocks) / all, from, own.dtype));
    const Buffer out = message.buffer(own.dtype, own.count, from * size_of(own.dtype));
    if (out.on_host())
      combine(out, terms, message.size() < kPastTheCache ? Store::cached : Store::streaming);
    else
      arithmetic_in(out.memory).combine(out, terms);
  }
};

RelaySum::ReceivedMean RelaySum::received_mean(const Relay::State::StoredMean& stored) const {
  const DType dtype = block_.in.dtype;
  if (!stored.arrival) return {{stored.elements(dtype), 1}, stored.blocks};
  return {term_of(stored.arrival, dtype, stored.bytes() / size_of(dtype)), stored.blocks};
}

std::vector<std::vector<RelaySum::OutgoingMean>> RelaySum::outgoing_means() const {
  std::vector<std::vector<OutgoingMean>> all(tree_parts_.size());
  for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree)
    for (const Rank neighbor : tree_parts_[tree].neighbors) {
      OutgoingMean mean{
          reserve(*flock_->fabric, tree_parts_[tree].count * size_of(block_.in.dtype), block_.in.memory)};
      for (const auto& [from, received] : state_->received) {
        if (from.first != tree || from.second == neighbor) continue;
        if (received.bytes() != mean.message.size())
          throw InvalidArgument(fmt::format("{}: the last message of rank {} has {} bytes, this block {}",
                                            topic_.text, from.second, received.bytes(), mean.message.size()));
        mean.received.push_back(received_mean(received));
        mean.count += received.blocks;
      }
      all[tree].push_back(std::move(mean));
    }
  return all;
}

// On the host in parts that fit the cache, so that every block is read once for all neighbors and trees.
void RelaySum::post_messages() {
  const DType dtype = block_.in.dtype;
  const auto all = outgoing_means();
  std::vector<Term> terms;
  if (interleaved() && !gathers()) {
    const Sorted own(tree_parts_.size(), dtype);
    for (std::size_t done = 0; done < block_.in.count; done += own.room()) {
      const std::size_t now = std::min(own.room(), block_.in.count - done);
      own.read(block_.in.host_data(), done, now);
      for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree)
        for (const OutgoingMean& mean : all[tree])
          mean.write({dtype, own[tree], share(now, tree, tree_parts_.size())}, done / tree_parts_.size(),
                     terms);
    }
  } else {
    const std::size_t chunk = block_.in.on_host() ? kRelayChunk / size_of(dtype) : block_.in.count;
    for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree)
      for (std::size_t done = 0; done < tree_parts_[tree].count; done += chunk)
        for (const OutgoingMean& mean : all[tree])
          mean.write(own_part(tree).part(done, std::min(chunk, tree_parts_[tree].count - done)), done, terms);
  }
  for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree)
    for (std::size_t to = 0; to < all[tree].size(); ++to) {
      MessageHeader head = header(dtype, tree_parts_[tree].count, block_.in.memory);
      head.detail = layout() * kCounts + all[tree][to].count;
      head.epoch = plan_.epoch;
      post(all[tree][to].message, head, tree_parts_[tree].neighbors[to]);
    }
}

RelaySum::Mixture RelaySum::mixture(const std::vector<ReceivedMean>& received) {
  const auto n = static_cast<std::int64_t>(flock_->membership.at_epoch(plan_.epoch)->members.size());
  Mixture mix;
  std::int64_t count = 1;
  for (const ReceivedMean& one : received) {
    count += static_cast<std::int64_t>(one.blocks);
  }
  const Missing missing = state_->options.missing;
  const auto all = static_cast<double>(missing == Missing::counts ? count : n);
  mix.self_weight = 1 / all;
  for (const ReceivedMean& one : received)
    mix.received.push_back(one.weighted(static_cast<double>(one.blocks) / all, 0, block_.in.dtype));
  if (const std::int64_t gap = n - count; gap > 0) {
    const double rest = static_cast<double>(gap) / static_cast<double>(n);
    // Once every rank has contributed, only dead ranks are missing, and the reference does not replace them.
    if (missing == Missing::reference && !state_->filled)
      mix.reference_weight = rest;
    else if (missing == Missing::own || missing == Missing::reference)
      mix.self_weight += rest;
  }
  state_->contributors = std::min(state_->contributors, count);
  return mix;
}

void RelaySum::combine_parts(const std::vector<Mixture>& mixtures) {
  for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree) {
    const TreePart& part = tree_parts_[tree];
    const Mixture& mix = mixtures[tree];
    if (part.count == 0) continue;
    std::vector<Term> terms = {{own_part(tree), mix.self_weight}};
    terms.insert(terms.end(), mix.received.begin(), mix.received.end());
    kernel::OwnedBuffer reference;
    if (mix.reference_weight > 0) {
      const ConstBuffer whole = state_->reference.elements(block_.in.dtype);
      if (gathers()) reference = gathered(whole, tree);
      terms.emplace_back(gathers() ? reference.buffer() : whole.part(part.first, part.count),
                         mix.reference_weight);
    }
    const Arithmetic& arithmetic = arithmetic_in(block_.in.memory);
    const Buffer out = gathers() ? gathered_[tree].buffer() : block_.out.part(part.first, part.count);
    arithmetic.combine(out, terms);
    if (gathers())
      arithmetic.copy_strided(block_.out.part(tree, block_.out.count - tree), tree_parts_.size(), out, 1);
  }
}

void RelaySum::combine_interleaved(const std::vector<Mixture>& mixtures) {
  const std::size_t trees = tree_parts_.size();
  const Sorted own(trees, block_.in.dtype);
  const Sorted reference(trees, block_.in.dtype);
  const bool refers = std::any_of(mixtures.begin(), mixtures.end(),
                                  [](const Mixture& mix) { return mix.reference_weight > 0; });
  std::vector<Term> terms;
  for (std::size_t done = 0; done < block_.in.count; done += own.room()) {
    const std::size_t now = std::min(own.room(), block_.in.count - done);
    own.read(block_.in.host_data(), done, now);
    if (refers) reference.read(state_->reference.elements(block_.in.dtype).host_data(), done, now);
    for (std::size_t tree = 0; tree < trees; ++tree) {
      const Mixture& mix = mixtures[tree];
      terms.assign(1, {own[tree], mix.self_weight});
      for (const Term& one : mix.received)
        terms.emplace_back(
            ConstBuffer(block_.in.dtype, one.data, tree_parts_[tree].count).part(done / trees, 0),
            one.weight);
      if (mix.reference_weight > 0) terms.emplace_back(reference[tree], mix.reference_weight);
      combine(block_.in.dtype, own[tree], terms, share(now, tree, trees), Store::cached);
    }
    own.write(block_.out.host_data(), done, now);
  }
}

std::vector<std::vector<RelaySum::ReceivedMean>> RelaySum::received_by_tree() {
  std::vector<std::vector<ReceivedMean>> received(tree_parts_.size());
  if (state_->options.overlap) {
    for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree)
      for (const Rank neighbor : tree_parts_[tree].neighbors)
        if (const auto stored = state_->received.find({tree, neighbor}); stored != state_->received.end())
          received[tree].push_back(received_mean(stored->second));
    return received;
  }
  for (std::size_t i = 0; i < awaited_.size(); ++i)
    if (const Arrival& arrival = awaited_[i].arrival)
      received[awaited_tree_[i]].push_back(
          {term_of(arrival, block_.in.dtype, tree_parts_[awaited_tree_[i]].count), contributors_in(arrival)});
  return received;
}

// The messages stay in their senders' memory until the next step has passed them on.
void RelaySum::store_received() {
  for (std::size_t i = 0; i < awaited_.size(); ++i) {
    Awaited& awaited = awaited_[i];
    if (!awaited.arrival) continue;
    const std::uint64_t blocks = contributors_in(awaited.arrival);
    state_->received[{awaited_tree_[i], awaited.expectation.source}] = {
        std::move(awaited.arrival), {}, blocks};
  }
}

void RelaySum::combine_all() {
  state_->contributors = flock_->size();
  std::vector<Mixture> mixtures;
  for (const auto& received : received_by_tree()) mixtures.push_back(mixture(received));
  interleaved() && !gathers() ? combine_interleaved(mixtures) : combine_parts(mixtures);
  if (state_->contributors == flock_->size()) state_->filled = true;
}

// With overlap: the next step receives the messages of this one.
void RelaySum::post_ahead() {
  post_messages();
  for (std::size_t tree = 0; tree < tree_parts_.size(); ++tree)
    for (const Rank neighbor : tree_parts_[tree].neighbors)
      state_->in_flight.push_back({tree, expected_from(neighbor, tree)});
}

void RelaySum::proceed() {
  if (only_receives_) {
    store_received();
    finish();
    return;
  }
  check_layout();
  if (state_->options.overlap) {
    store_received();
    post_ahead();
    combine_all();
  } else {
    combine_all();
    store_received();
    // A leaf has no neighbor to pass it on to.
    std::erase_if(state_->received, [&](const auto& received) {
      return tree_parts_[received.first.first].neighbors.size() < 2;
    });
  }
  finish();
}

// With patience for dropped messages, a lost neighbor's message counts as dropped.
Operation::Loss RelaySum::lose(const Awaited& awaited) {
  const Loss loss = Operation::lose(awaited);
  return state_->options.patience == std::chrono::nanoseconds::max() ? loss : Loss::without;
}

void RelaySum::reconsider() {
  const auto now = std::chrono::steady_clock::now();
  if (started_ == Deadline{}) started_ = now;
  const bool impatient = now - started_ > state_->options.patience;
  for (Awaited& awaited : awaited_) {
    if (awaited.settled) continue;
    const bool missing = awaited.missing();
    if (!impatient && !(missing && flock_->mailbox.overtaken(awaited.expectation))) continue;
    if (missing) flock_->mailbox.refuse(awaited.expectation);  // in case it arrives later
    awaited.arrival = {};
    awaited.settled = true;
  }
}

}  // namespace starling::flock
