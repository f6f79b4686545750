#include "starling/simulate/relay.h"

#include "starling/kernel/combine.h"
#include "starling/kernel/interleave.h"
#include "starling/simulate/channel.h"

namespace starling::simulate {
namespace {

// The elements of each tree: tree t has elements t, t + trees, t + 2 trees, ...
std::vector<std::vector<std::byte>> deinterleaved(ConstBuffer block, std::size_t trees) {
  const std::size_t element = size_of(block.dtype);
  std::vector<std::vector<std::byte>> parts;
  std::vector<std::byte*> places;
  for (std::size_t tree = 0; tree < trees; ++tree)
    parts.emplace_back((block.count + trees - 1 - tree) / trees * element);
  for (auto& part : parts) places.push_back(part.data());
  deinterleave(places, block.host_data(), block.count, element);
  return parts;
}

void interleave_into(Buffer block, std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::byte*> places;
  for (auto& part : parts) places.push_back(part.data());
  interleave(block.host_data(), places, block.count, size_of(block.dtype));
}

}  // namespace

std::vector<SimulatedRelay::TreePart> SimulatedRelay::tree_parts(SimulatedChannel& channel,
                                                                 std::size_t count) const {
  const SchedulePtr schedule = channel.schedule();
  const auto trees = static_cast<std::size_t>(schedule->period());
  std::vector<TreePart> all;
  for (std::size_t tree = 0; tree < trees; ++tree) {
    all.push_back({(count + trees - 1 - tree) / trees, {}});
    for (const Source& source : schedule->exchange(static_cast<Step>(tree), channel.rank()).sources)
      all.back().neighbors.push_back(source.rank);
  }
  return all;
}

void SimulatedRelay::set_reference(ConstBuffer x) {
  const std::byte* bytes = x.host_bytes();
  reference_.assign(bytes, bytes + x.bytes());
}

void SimulatedRelay::post(SimulatedChannel& channel, const Piece& block) {
  block_ = block;
  if (channel.network().options().relay.overlap && step_ > 0) {
    heard_.clear();
    hear(channel, step_ - 1);
  }
  const DType dtype = block.in.dtype;
  const auto all = tree_parts(channel, block.in.count);
  const auto own = deinterleaved(block.in, all.size());
  Posted& posted = posted_[static_cast<std::size_t>(step_ % 2)];
  posted.stamp.set(step_, channel.network().pass());
  posted.time = channel.clock();
  posted.messages.clear();
  for (std::size_t tree = 0; tree < all.size(); ++tree)
    for (const Rank neighbor : all[tree].neighbors) {
      RelayedMean message;
      message.blocks = 1;
      std::vector<Term> terms = {{own[tree].data(), 1}};
      for (const auto& [from, relayed] : heard_) {
        if (from.first != tree || from.second == neighbor) continue;
        terms.emplace_back(relayed.mean.data(), static_cast<double>(relayed.blocks));
        message.blocks += relayed.blocks;
      }
      for (Term& term : terms) term.weight /= static_cast<double>(message.blocks);
      message.mean.resize(own[tree].size());
      combine(dtype, message.mean.data(), terms, all[tree].count);
      channel.count_sent(message.mean.size());
      posted.messages[{tree, neighbor}] = std::move(message);
    }
}

Step SimulatedRelay::used_step(SimulatedChannel& channel) const {
  return channel.network().options().relay.overlap ? step_ - 1 : step_;
}

bool SimulatedRelay::ready(SimulatedChannel& channel) const {
  const Step used = used_step(channel);
  if (used < 0 || channel.network().options().relay.overlap) return true;  // they arrived one step ago
  for (const TreePart& part : tree_parts(channel, block_.in.count))
    for (const Rank neighbor : part.neighbors) {
      const Posted& posted = channel.network()[neighbor].relays().posted_in(used);
      if (!posted.stamp.is_there(used, channel.network().pass())) return false;
    }
  return true;
}

void SimulatedRelay::hear(SimulatedChannel& channel, Step step) {
  SimulatedNetwork& network = channel.network();
  const Rank self = channel.rank();
  for (std::size_t tree = 0; const TreePart& part : tree_parts(channel, block_.in.count)) {
    for (const Rank neighbor : part.neighbors) {
      const Posted& posted = network[neighbor].relays().posted_in(step);
      if (network.lost(step, neighbor, self)) continue;
      const RelayedMean& relayed = posted.messages.at({tree, self});
      const ModelledLink& link = network.options().time.link_between(neighbor, self);
      const auto before = posted.messages.find({tree, self});
      const auto place = static_cast<double>(std::distance(posted.messages.begin(), before) + 1);
      channel.wait_until(posted.time + link.latency +
                         place * static_cast<double>(relayed.mean.size()) * link.seconds_per_byte);
      heard_[{tree, neighbor}] = relayed;
    }
    ++tree;
  }
}

void SimulatedRelay::finish(SimulatedChannel& channel) {
  const RelayRule& rule = channel.network().options().relay;
  if (!rule.overlap) {
    heard_.clear();
    hear(channel, step_);
  }
  const DType dtype = block_.in.dtype;
  const auto n = static_cast<std::int64_t>(channel.size());
  const auto all = tree_parts(channel, block_.in.count);
  auto own = deinterleaved(block_.in, all.size());
  if (rule.missing == "reference" && !filled_ && reference_.empty()) set_reference(block_.in);
  const auto reference = reference_.empty()
                             ? std::vector<std::vector<std::byte>>(all.size())
                             : deinterleaved({dtype, reference_.data(), block_.in.count}, all.size());
  std::int64_t fewest = n;
  for (std::size_t tree = 0; tree < all.size(); ++tree) {
    std::int64_t count = 1;
    std::vector<Term> terms = {{own[tree].data(), 0}};
    for (const Rank neighbor : all[tree].neighbors)
      if (const auto relayed = heard_.find({tree, neighbor}); relayed != heard_.end()) {
        count += static_cast<std::int64_t>(relayed->second.blocks);
        terms.emplace_back(relayed->second.mean.data(), static_cast<double>(relayed->second.blocks));
      }
    const auto shares = static_cast<double>(rule.missing == "counts" ? count : n);
    for (Term& term : terms) term.weight /= shares;
    double self_weight = 1 / shares;
    double reference_weight = 0;
    if (n > count) {
      const double rest = static_cast<double>(n - count) / static_cast<double>(n);
      if (rule.missing == "reference" && !filled_)
        reference_weight = rest;
      else if (rule.missing == "own" || rule.missing == "reference")
        self_weight += rest;
    }
    fewest = std::min(fewest, count);
    terms[0].weight = self_weight;
    if (reference_weight > 0) terms.emplace_back(reference[tree].data(), reference_weight);
    combine(dtype, own[tree].data(), terms, all[tree].count);
  }
  interleave_into(block_.out, own);
  if (fewest == n) {
    filled_ = true;
    reference_.clear();
  }
  ++step_;
}

}  // namespace starling::simulate
