#include "starling/flock/relay_sum.h"

#include <algorithm>

#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"

namespace starling {
namespace {

constexpr std::size_t kInCache = 64 << 10;  // bytes

}  // namespace

RelaySum::RelaySum(std::shared_ptr<Relay::State> state, Core::Turn turn, const Piece& block)
    : Operation(MessageKind::relay, state->core, *state->topic, turn.step),
      state_(std::move(state)),
      turn_(std::move(turn)),
      block_(block) {
  const auto trees = static_cast<std::size_t>(turn_.over->period());
  const std::size_t count = block_.in.count;
  for (std::size_t tree = 0; tree < trees; ++tree) {
    Lane lane{count * tree / trees, count * (tree + 1) / trees - count * tree / trees, {}};
    const Exchange exchange = turn_.over->exchange(static_cast<Step>(tree), core_->self());
    for (const Source& source : exchange.sources) lane.neighbors.push_back(source.rank);
    lanes_.push_back(std::move(lane));
  }
}

void RelaySum::start() {
  // Over the live members there are other trees: what was said on the old ones says nothing about them.
  if (state_->epoch != turn_.epoch) {
    state_->heard.clear();
    state_->filled = true;  // what was at the start is far away by now
    state_->epoch = turn_.epoch;
  }
  const std::size_t bytes = block_.in.bytes();
  if (state_->filled) state_->reference = {};
  if (state_->options.missing == Missing::reference && !state_->filled && state_->reference.empty() &&
      bytes > 0) {
    state_->reference.resize(bytes);
    copy_bytes(state_->reference.data(), block_.in.data, bytes);
  }
  for (std::size_t tree = 0; tree < lanes_.size(); ++tree) post_messages(tree);
  state_->heard.clear();
  for (std::size_t tree = 0; tree < lanes_.size(); ++tree)
    for (const Rank neighbor : lanes_[tree].neighbors) {
      Expectation expected = expectation(neighbor, core_->mailbox.next_from(topic_, neighbor),
                                         block_.in.dtype, lanes_[tree].count);
      expected.any_detail = true;  // how many blocks are in it
      expected.epoch = turn_.epoch;
      await(expected);
    }
}

// To each neighbour: this rank's block and what the others said last. A part of the cache at a time, so that
// every block is read once however many neighbours there are.
void RelaySum::post_messages(std::size_t tree) {
  const Lane& lane = lanes_[tree];
  const std::size_t element = size_of(block_.in.dtype);
  std::vector<Outgoing> messages;
  std::vector<std::vector<Term>> terms(lane.neighbors.size());
  std::vector<std::uint64_t> counts(lane.neighbors.size(), 1);
  for (std::size_t to = 0; to < lane.neighbors.size(); ++to) {
    messages.push_back(core_->fabric->reserve(lane.count * element));
    terms[to].push_back({input(lane), 1});
    for (const auto& [from, arrival] : state_->heard) {
      if (from.first != tree || from.second == lane.neighbors[to]) continue;
      terms[to].push_back({arrival.bytes().data(), 1});
      counts[to] += arrival.header().detail;
    }
  }
  const std::size_t chunk = kInCache / element;
  std::vector<Term> part;
  for (std::size_t done = 0; done < lane.count; done += chunk) {
    const std::size_t now = std::min(chunk, lane.count - done);
    for (std::size_t to = 0; to < messages.size(); ++to) {
      part = terms[to];
      for (Term& term : part) term.data = static_cast<const std::byte*>(term.data) + done * element;
      combine(block_.in.dtype, messages[to].bytes().data() + done * element, part, now, Store::cached);
    }
  }
  for (std::size_t to = 0; to < messages.size(); ++to) {
    MessageHeader head = header(block_.in.dtype, lane.count);
    head.detail = counts[to];
    head.epoch = turn_.epoch;
    post(messages[to], head, lane.neighbors[to]);
  }
}

const std::byte* RelaySum::input(const Lane& lane) const {
  return static_cast<const std::byte*>(block_.in.data) + lane.begin * size_of(block_.in.dtype);
}

void RelaySum::finish_lane(const Lane& lane, std::span<Awaited> awaited) {
  const auto n = static_cast<std::int64_t>(core_->membership.at_epoch(turn_.epoch)->members.size());
  const std::size_t offset = lane.begin * size_of(block_.in.dtype);
  std::int64_t count = 1;
  std::vector<Term> terms = {{input(lane), 1}};
  for (const Awaited& one : awaited)
    if (one.arrival) {
      terms.push_back({one.arrival.bytes().data(), 1});
      count += static_cast<std::int64_t>(one.arrival.header().detail);
    }
  const std::int64_t of = state_->options.missing == Missing::counts ? count : n;
  for (Term& term : terms) term.weight = 1.0 / static_cast<double>(of);
  if (const std::int64_t gap = n - count; gap > 0) {
    const double share = static_cast<double>(gap) / static_cast<double>(n);
    // Once everybody has been heard, only the dead are missing, and the start is no stand-in for them.
    const bool reference = state_->options.missing == Missing::reference && !state_->filled;
    if (reference)
      terms.push_back({state_->reference.data() + offset, share});
    else if (state_->options.missing != Missing::counts)
      terms[0].weight += share;
  }
  combine(block_.in.dtype, static_cast<std::byte*>(block_.out) + offset, terms, lane.count);
  state_->contributors = std::min(state_->contributors, count);
}

void RelaySum::proceed() {
  state_->contributors = core_->size();
  std::span<Awaited> rest = awaited_;
  for (std::size_t tree = 0; tree < lanes_.size(); ++tree) {
    const std::size_t neighbors = lanes_[tree].neighbors.size();
    finish_lane(lanes_[tree], rest.first(neighbors));
    // The messages stay where they were written until the next step has passed them on; a leaf has nobody to
    // pass them on to.
    for (Awaited& awaited : rest.first(neighbors))
      if (awaited.arrival && neighbors > 1)
        state_->heard[{tree, awaited.expectation.source}] = std::move(awaited.arrival);
    rest = rest.subspan(neighbors);
  }
  if (state_->contributors == core_->size()) state_->filled = true;
  finish();
}

// Who has patience for dropped messages takes a lost neighbour's for one.
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
    if (!impatient && !core_->mailbox.overtaken(awaited.expectation)) continue;
    core_->mailbox.refuse(awaited.expectation);  // should it come after all
    awaited.settled = true;
  }
}

}  // namespace starling
