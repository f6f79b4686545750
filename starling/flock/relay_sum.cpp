#include "starling/flock/relay_sum.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/flock/errors.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"
#include "starling/kernel/interleave.h"

namespace starling::flock {
namespace {

constexpr std::size_t kRelayChunk = 64 << 10;  // bytes
// A message of this length has left all caches when it is read.
constexpr std::size_t kPastTheCache = std::size_t{4} << 20;
// Sorting takes little at a time: the next lines are then on their way while these are being summed.
constexpr std::size_t kSorted = 2 << 10;

// A message tells how many blocks are in it, and which trees and lanes its sender uses.
constexpr std::uint64_t kCounts = std::uint64_t{1} << 32;

std::uint64_t contributors_in(const Arrival& arrival) {
  return arrival.header().detail % kCounts;
}

/// A part of a block in the cache, the elements of each tree together.
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

// How many of `count` elements dealt to `trees` one gets.
std::size_t share(std::size_t count, std::size_t tree, std::size_t trees) {
  return (count + trees - 1 - tree) / trees;
}

}  // namespace

RelaySum::RelaySum(std::shared_ptr<Relay::State> state, StepPlan plan, const Piece& block)
    : Operation(MessageKind::relay, state->flock, *state->topic, plan.step),
      state_(std::move(state)),
      plan_(std::move(plan)),
      block_(block) {
  const auto trees = static_cast<std::size_t>(plan_.over->period());
  for (std::size_t tree = 0; tree < trees; ++tree) {
    lanes_.push_back(lane_of(tree, trees));
    const Exchange exchange = plan_.over->exchange(static_cast<Step>(tree), flock_->self());
    for (const Source& source : exchange.sources) lanes_.back().neighbors.push_back(source.rank);
  }
}

RelaySum::RelaySum(std::shared_ptr<Relay::State> state)
    : Operation(MessageKind::relay, state->flock, *state->topic),
      state_(std::move(state)),
      only_takes_in_(true) {}

RelaySum::Lane RelaySum::lane_of(std::size_t tree, std::size_t trees) const {
  const std::size_t count = block_.in.count;
  if (!state_->options.contiguous) return {0, share(count, tree, trees), {}};
  const std::size_t first = count * tree / trees;
  return {first, count * (tree + 1) / trees - first, {}};
}

std::uint64_t RelaySum::layout() const {
  return (plan_.schedule + (state_->options.contiguous ? 1 : 0)) % kCounts;
}

// Other trees mostly have other neighbours, but other lanes may have the same lengths.
void RelaySum::check_layout() const {
  for (const Awaited& one : awaited_)
    if (one.arrival && one.arrival.header().detail / kCounts != layout())
      throw Mismatch(fmt::format(
          "{}: rank {} relays over other trees, or divides blocks among them in another way, than rank {}",
          topic_.text, one.expectation.source, flock_->self()));
}

Expectation RelaySum::expected_from(Rank neighbor, std::size_t tree) {
  Expectation expected =
      expectation(neighbor, flock_->mailbox.next_from(topic_, neighbor), block_.in.dtype, lanes_[tree].count);
  expected.any_detail = true;  // how many blocks are in it
  expected.epoch = plan_.epoch;
  return expected;
}

void RelaySum::start() {
  if (!only_takes_in_) begin_step();
  if (!only_takes_in_ && !state_->options.overlap) {
    post_messages();
    state_->heard.clear();
    for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
      for (const Rank neighbor : lanes_[tree].neighbors) {
        await(expected_from(neighbor, tree));
        awaited_tree_.push_back(tree);
      }
    return;
  }
  if (!state_->coming.empty()) state_->heard.clear();
  for (const Relay::State::Coming& coming : state_->coming) {
    await(coming.expectation);
    awaited_tree_.push_back(coming.tree);
  }
  state_->coming.clear();
}

void RelaySum::begin_step() {
  // The live members have other trees, for which messages of the old ones mean nothing.
  if (state_->epoch != plan_.epoch) {
    state_->heard.clear();
    for (const Relay::State::Coming& coming : state_->coming) flock_->mailbox.refuse(coming.expectation);
    state_->coming.clear();
    state_->filled = true;  // the start is far away by now
    state_->epoch = plan_.epoch;
  }
  const std::size_t bytes = block_.in.bytes();
  if (state_->filled) state_->reference = {};
  if (state_->options.missing == Missing::reference && !state_->filled && state_->reference.empty() &&
      bytes > 0) {
    state_->reference.resize(bytes);
    copy_bytes(state_->reference.data(), block_.in);
  }
}

/// To a neighbour: the mean of this rank's block and of what the others said last. Means travel, not sums:
/// equal blocks stay what they are, and float16 does not overflow.
struct RelaySum::Letter {
  Outgoing message;
  std::vector<Said> heard = {};
  std::uint64_t count = 1;

  void write(DType dtype, const void* own, std::size_t from, std::size_t count_now,
             std::vector<Term>& terms) const {
    const std::size_t offset = from * size_of(dtype);
    const auto all = static_cast<double>(count);
    terms.assign(1, {own, 1 / all});
    for (const Said& one : heard) terms.push_back({one.data + offset, static_cast<double>(one.blocks) / all});
    combine(dtype, message.bytes().data() + offset, terms, count_now,
            message.bytes().size() < kPastTheCache ? Store::cached : Store::streaming);
  }
};

std::vector<std::vector<RelaySum::Letter>> RelaySum::letters() const {
  std::vector<std::vector<Letter>> all(lanes_.size());
  for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
    for (const Rank neighbor : lanes_[tree].neighbors) {
      Letter letter{flock_->fabric->reserve(lanes_[tree].count * size_of(block_.in.dtype))};
      for (const auto& [from, heard] : state_->heard) {
        if (from.first != tree || from.second == neighbor) continue;
        if (heard.bytes().size() != letter.message.bytes().size())
          throw InvalidArgument(fmt::format("{}: what rank {} said has {} bytes, this block {}", topic_.text,
                                            from.second, heard.bytes().size(),
                                            letter.message.bytes().size()));
        letter.heard.push_back({heard.bytes().data(), heard.blocks});
        letter.count += heard.blocks;
      }
      all[tree].push_back(std::move(letter));
    }
  return all;
}

// A part of the cache at a time, so that every block is read once however many neighbours and trees there
// are.
void RelaySum::post_messages() {
  const DType dtype = block_.in.dtype;
  const auto all = letters();
  std::vector<Term> terms;
  if (dealt()) {
    const Sorted own(lanes_.size(), dtype);
    for (std::size_t done = 0; done < block_.in.count; done += own.room()) {
      const std::size_t now = std::min(own.room(), block_.in.count - done);
      own.read(block_.in.host_data(), done, now);
      for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
        for (const Letter& letter : all[tree])
          letter.write(dtype, own[tree], done / lanes_.size(), share(now, tree, lanes_.size()), terms);
    }
  } else {
    const std::size_t chunk = kRelayChunk / size_of(dtype);
    for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
      for (std::size_t done = 0; done < lanes_[tree].count; done += chunk)
        for (const Letter& letter : all[tree])
          letter.write(dtype, element(block_.in.host_data(), lanes_[tree].first + done), done,
                       std::min(chunk, lanes_[tree].count - done), terms);
  }
  for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
    for (std::size_t to = 0; to < all[tree].size(); ++to) {
      MessageHeader head = header(dtype, lanes_[tree].count);
      head.detail = layout() * kCounts + all[tree][to].count;
      head.epoch = plan_.epoch;
      post(all[tree][to].message, head, lanes_[tree].neighbors[to]);
    }
}

RelaySum::Mixture RelaySum::mixture(const std::vector<Said>& said) {
  const auto n = static_cast<std::int64_t>(flock_->membership.at_epoch(plan_.epoch)->members.size());
  Mixture mix;
  std::int64_t count = 1;
  for (const Said& one : said) {
    count += static_cast<std::int64_t>(one.blocks);
  }
  const Missing missing = state_->options.missing;
  const auto all = static_cast<double>(missing == Missing::counts ? count : n);
  mix.self_weight = 1 / all;
  for (const Said& one : said) mix.heard.push_back({one.data, static_cast<double>(one.blocks) / all});
  if (const std::int64_t gap = n - count; gap > 0) {
    const double rest = static_cast<double>(gap) / static_cast<double>(n);
    // Once all ranks have been heard, only dead ranks are missing, and the start does not replace them.
    if (missing == Missing::reference && !state_->filled)
      mix.reference_weight = rest;
    else if (missing == Missing::own || missing == Missing::reference)
      mix.self_weight += rest;
  }
  state_->contributors = std::min(state_->contributors, count);
  return mix;
}

void RelaySum::combine_lanes(const std::vector<Mixture>& mixtures) {
  for (std::size_t tree = 0; tree < lanes_.size(); ++tree) {
    const Lane& lane = lanes_[tree];
    const Mixture& mix = mixtures[tree];
    if (lane.count == 0) continue;
    std::vector<Term> terms = {{element(block_.in.host_data(), lane.first), mix.self_weight}};
    terms.insert(terms.end(), mix.heard.begin(), mix.heard.end());
    if (mix.reference_weight > 0)
      terms.push_back({element(state_->reference.data(), lane.first), mix.reference_weight});
    combine(block_.out.part(lane.first, lane.count), terms);
  }
}

void RelaySum::combine_dealt(const std::vector<Mixture>& mixtures) {
  const std::size_t trees = lanes_.size();
  const Sorted own(trees, block_.in.dtype);
  const Sorted reference(trees, block_.in.dtype);
  const bool refers = std::any_of(mixtures.begin(), mixtures.end(),
                                  [](const Mixture& mix) { return mix.reference_weight > 0; });
  std::vector<Term> terms;
  for (std::size_t done = 0; done < block_.in.count; done += own.room()) {
    const std::size_t now = std::min(own.room(), block_.in.count - done);
    own.read(block_.in.host_data(), done, now);
    if (refers) reference.read(state_->reference.data(), done, now);
    for (std::size_t tree = 0; tree < trees; ++tree) {
      const Mixture& mix = mixtures[tree];
      terms.assign(1, {own[tree], mix.self_weight});
      for (const Term& one : mix.heard) terms.push_back({element(one.data, done / trees), one.weight});
      if (mix.reference_weight > 0) terms.push_back({reference[tree], mix.reference_weight});
      combine(block_.in.dtype, own[tree], terms, share(now, tree, trees), Store::cached);
    }
    own.write(block_.out.host_data(), done, now);
  }
}

std::vector<std::vector<RelaySum::Said>> RelaySum::said_by_lane() {
  std::vector<std::vector<Said>> said(lanes_.size());
  if (state_->options.overlap) {
    for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
      for (const Rank neighbor : lanes_[tree].neighbors)
        if (const auto heard = state_->heard.find({tree, neighbor}); heard != state_->heard.end())
          said[tree].push_back({heard->second.bytes().data(), heard->second.blocks});
    return said;
  }
  for (std::size_t i = 0; i < awaited_.size(); ++i)
    if (const Arrival& arrival = awaited_[i].arrival)
      said[awaited_tree_[i]].push_back({arrival.bytes().data(), contributors_in(arrival)});
  return said;
}

// The messages stay where they were written until the next step has passed them on.
void RelaySum::take_in() {
  for (std::size_t i = 0; i < awaited_.size(); ++i) {
    Awaited& awaited = awaited_[i];
    if (!awaited.arrival) continue;
    const std::uint64_t blocks = contributors_in(awaited.arrival);
    state_->heard[{awaited_tree_[i], awaited.expectation.source}] = {std::move(awaited.arrival), {}, blocks};
  }
}

void RelaySum::combine_all() {
  state_->contributors = flock_->size();
  std::vector<Mixture> mixtures;
  for (const auto& said : said_by_lane()) mixtures.push_back(mixture(said));
  dealt() ? combine_dealt(mixtures) : combine_lanes(mixtures);
  if (state_->contributors == flock_->size()) state_->filled = true;
}

// With overlap: the messages of this step will be taken in by the next.
void RelaySum::go_ahead() {
  post_messages();
  for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
    for (const Rank neighbor : lanes_[tree].neighbors)
      state_->coming.push_back({tree, expected_from(neighbor, tree)});
}

void RelaySum::proceed() {
  if (only_takes_in_) {
    take_in();
    finish();
    return;
  }
  check_layout();
  if (state_->options.overlap) {
    take_in();
    go_ahead();
    combine_all();
  } else {
    combine_all();
    take_in();
    // A leaf has no neighbour to pass it on to.
    std::erase_if(state_->heard,
                  [&](const auto& heard) { return lanes_[heard.first.first].neighbors.size() < 2; });
  }
  finish();
}

// With patience for dropped messages, a lost neighbour's message counts as dropped.
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
    if (!impatient && !flock_->mailbox.overtaken(awaited.expectation)) continue;
    flock_->mailbox.refuse(awaited.expectation);  // should it come after all
    awaited.settled = true;
  }
}

}  // namespace starling::flock
