#include "starling/simulate/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"

namespace starling::simulate {
namespace {

constexpr Step kKeptRows = 64;
// In larger groups, differences are taken from the group's mean.
constexpr std::int64_t kPairwise = 512;

// The same pieces, at their places in a message.
Pieces packed(const Pieces& pieces, std::vector<std::byte>& bytes) {
  bytes.resize(message_bytes(pieces));
  Pieces inside = pieces;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].in.count > 0)
      std::memcpy(bytes.data() + pieces[i].offset, pieces[i].in.host_data(), pieces[i].in.bytes());
    inside[i].in = pieces[i].in.at<const void>(bytes.data() + pieces[i].offset);
  }
  return inside;
}

}  // namespace

SimulatedChannel::SimulatedChannel(SimulatedNetwork& network, Rank node) : network_(network), node_(node) {
  const SchedulePtr schedule = network.options().schedule;
  lanes_ = schedule && schedule->mixing() == Mixing::two_block;
  if (!schedule || schedule->random() || schedule->period() > kKeptRows) return;
  for (Step round = 0; round < schedule->period(); ++round) {
    fixed_.push_back(schedule->exchange(round, node));
    places_.emplace_back();
    for (const Source& source : fixed_.back().sources)
      places_.back().push_back(place_among(schedule->exchange(round, source.rank)));
  }
}

// The position of this node among a sender's destinations, since messages leave one after another.
double SimulatedChannel::place_among(const Exchange& theirs) const {
  const auto& to = theirs.destinations;
  const auto place =
      std::find_if(to.begin(), to.end(), [&](const Destination& d) { return d.rank == node_; });
  return static_cast<double>(std::distance(to.begin(), place) + 1);
}

Exchange SimulatedChannel::row(Step round) const {
  if (!fixed_.empty()) return fixed_[static_cast<std::size_t>(round) % fixed_.size()];
  return network_.options().schedule->exchange(round, node_);
}

bool SimulatedChannel::has_posted(Step round) const {
  return post_of(round).stamp.is_there(round, network_.pass());
}

void SimulatedChannel::wait_until(double time) {
  if (time <= clock_) return;
  waited_ += time - clock_;
  clock_ = time;
}

// The other post holds the last round's message, which other nodes may still read.
SimulatedChannel::Post& SimulatedChannel::begin_post(std::size_t bytes) {
  Post& post = posts_[static_cast<std::size_t>(round_ % 2)];
  post.bytes.resize(bytes);
  return post;
}

void SimulatedChannel::announce(Kind kind, Post& post, Pieces pieces) {
  post.stamp.set(round_, network_.pass());
  post.time = clock_;
  post.row = &post.drawn;
  if (fixed_.empty())
    network_.options().schedule->exchange(round_, node_, post.drawn);
  else
    post.row = &fixed_[static_cast<std::size_t>(round_) % fixed_.size()];
  post.places = fixed_.empty() ? nullptr : &places_[static_cast<std::size_t>(round_) % fixed_.size()];
  post.receipts =
      network_.options().drop > 0 && !lanes_ &&
      std::ranges::any_of(pieces, [](const Piece& piece) { return piece.if_lost != IfLost::own; });
  if (post.receipts) bytes_sent_ += sizeof(double) * post.exchange().sources.size();
  post.pieces = pieces;
  for (Piece& piece : post.pieces) piece.in = piece.in.at<const void>(post.bytes.data() + piece.offset);
  const std::size_t bytes = post.bytes.size();
  if (lanes_)
    for (const Destination& to : post.exchange().destinations)
      bytes_sent_ += pieces[to.lane == Lane::a ? 0 : 1].in.bytes();
  else
    bytes_sent_ += bytes * post.exchange().destinations.size();
  if (const auto members = static_cast<std::size_t>(post.exchange().group.size()); members > 1)
    bytes_sent_ += 2 * (members - 1) * bytes / members;
  jobs_.push_back({kind, std::move(pieces), round_});
  ++round_;
}

void SimulatedChannel::post(Kind kind, Pieces pieces) {
  Post& post = begin_post(message_bytes(pieces));
  for (const Piece& piece : pieces)
    if (piece.in.count > 0)
      std::memcpy(post.bytes.data() + piece.offset, piece.in.host_data(), piece.in.bytes());
  announce(kind, post, std::move(pieces));
}

SharedExchange SimulatedChannel::share(ConstBuffer x, Outgoing written) {
  Pieces pieces = {{x, {}, 0}};
  if (written)
    announce(Kind::share, begin_post(x.bytes()), std::move(pieces));
  else
    post(Kind::share, std::move(pieces));
  return SharedExchange(*this);
}

// Memory for the post of the next round; the caller fills it and returns it before that round.
Outgoing SimulatedChannel::outgoing(ConstBuffer block) {
  if (lanes_) return {};
  return {this, nullptr, begin_post(block.bytes()).bytes};
}

void SimulatedChannel::mix(Outgoing written, Buffer out) {
  announce(Kind::mix, begin_post(written.bytes().size()), {{out, out, 0}});
}

void SimulatedChannel::contribute(Contribution contribution, Job job) {
  job.number = contribution.number = collectives_[contribution.purpose]++;
  job.purpose = contribution.purpose;
  contribution.time = clock_;
  contributions.push_back(std::move(contribution));
  jobs_.push_back(std::move(job));
}

void SimulatedChannel::reduce(Pieces pieces, Reduction reduction) {
  Contribution made{SimulatedNetwork::Purpose::reduction, 0, reduction, 0, 0, {}, {}};
  made.pieces = packed(pieces, made.bytes);
  const auto n = static_cast<std::size_t>(size());
  bytes_sent_ += 2 * (n - 1) * made.bytes.size() / n;
  contribute(std::move(made), {Kind::collective, std::move(pieces)});
}

void SimulatedChannel::gather(ConstBuffer mine, std::vector<std::byte>& all) {
  Contribution made{SimulatedNetwork::Purpose::gathering, 0, Reduction::sum, 0, 0, {}, {}};
  made.pieces = packed({{mine, {}, 0}}, made.bytes);
  bytes_sent_ += static_cast<std::size_t>(size() - 1) * made.bytes.size();
  Job job{Kind::collective, {}};
  job.all = &all;
  contribute(std::move(made), std::move(job));
}

void SimulatedChannel::broadcast(Pieces pieces, Rank root) {
  Contribution made{SimulatedNetwork::Purpose::broadcast, 0, Reduction::sum, root, 0, {}, {}};
  made.pieces = packed(pieces, made.bytes);
  if (root == node_) bytes_sent_ += static_cast<std::size_t>(size() - 1) * made.bytes.size();
  contribute(std::move(made), {Kind::collective, std::move(pieces)});
}

void SimulatedChannel::start(Piece piece) {
  relay_.post(*this, piece);
  jobs_.push_back({Kind::relay, {piece}});
}

void SimulatedChannel::send(Pieces pieces, Rank to, const std::string& tag) {
  for (const Piece& piece : pieces) {
    PointToPointMessage message{to, tag, clock_, {}};
    packed({{piece.in, {}, 0}}, message.bytes);
    bytes_sent_ += message.bytes.size();
    unsent_messages.push_back(std::move(message));
  }
}

void SimulatedChannel::receive(Pieces pieces, Rank from, const std::string& tag) {
  for (const Piece& piece : pieces) {
    Job job{Kind::message, {piece}};
    job.from = from;
    job.tag = tag;
    job.number = static_cast<std::int64_t>(std::count_if(jobs_.begin(), jobs_.end(), [&](const Job& other) {
      return other.kind == Kind::message && other.from == from && other.tag == tag;
    }));
    jobs_.push_back(std::move(job));
  }
}

OneSided& SimulatedChannel::window(Buffer block, OneSided::Start start) {
  if (!one_sided_) one_sided_ = std::make_unique<SimulatedOneSided>(*this, block, start);
  return *one_sided_;
}

void SimulatedChannel::set_progress(Step steps) {
  progress_ = steps;
  progress_time_ = clock_;
}

void SimulatedChannel::start_average(ConstBuffer block) {
  const std::byte* bytes = block.host_bytes();
  average_.assign(bytes, bytes + block.bytes());
  average_type_ = block.dtype;
  const auto n = static_cast<std::size_t>(size());
  bytes_sent_ += 2 * (n - 1) * block.bytes() / n;
  network_.contribute(averages_, average_block(), clock_);
}

bool SimulatedChannel::average_arrived(Buffer out) {
  const auto* collective = network_.collective(SimulatedNetwork::Purpose::average, averages_);
  if (collective == nullptr || collective->time > clock_) return false;
  copy_bytes(out.host_data(), collective->result.data(), collective->result.size());
  network_.take(SimulatedNetwork::Purpose::average, averages_++);
  return true;
}

bool SimulatedChannel::busy() const {
  return !jobs_.empty() || awaited_progress_ > 0 || awaits_average_;
}

bool SimulatedChannel::ready() {
  if (awaited_progress_ > 0)
    for (const Rank source : one_sided_->sources())
      if (network_[source].progress() < awaited_progress_) return false;
  if (awaits_average_ && network_.collective(SimulatedNetwork::Purpose::average, averages_) == nullptr)
    return false;
  return std::all_of(jobs_.begin(), jobs_.end(), [&](const Job& job) { return is_ready(job); });
}

bool SimulatedChannel::is_ready(const Job& job) const {
  switch (job.kind) {
    case Kind::collective:
      return network_.collective(job.purpose, job.number) != nullptr;
    case Kind::relay:
      return relay_.ready(const_cast<SimulatedChannel&>(*this));
    case Kind::message: {
      const auto found = inbox_.find({job.from, job.tag});
      return found != inbox_.end() && static_cast<std::int64_t>(found->second.size()) > job.number;
    }
    default:
      break;
  }
  const Post& own = post_of(job.round);
  if (own.exchange().group.size() > 1 && network_.mean_of(job.round, own.exchange().group) == nullptr)
    return false;
  const auto& destinations = own.exchange().destinations;
  if (own.receipts && !std::ranges::all_of(destinations, [&](const Destination& to) {
        return network_[to.rank].has_posted(job.round);
      }))
    return false;
  return std::all_of(own.exchange().sources.begin(), own.exchange().sources.end(), [&](const Source& source) {
    const SimulatedChannel& other = network_[source.rank];
    if (!other.has_posted(job.round)) return false;
    const Group& group = other.post_of(job.round).exchange().group;
    return group.size() < 2 || network_.mean_of(job.round, group) != nullptr;
  });
}

void SimulatedChannel::wait() {
  if (std::exchange(awaited_progress_, 0) > 0)
    for (const Rank source : one_sided_->sources())
      wait_until(network_[source].progress_time() + network_.options().time.latency(source, node_));
  if (std::exchange(awaits_average_, false))
    wait_until(network_.collective(SimulatedNetwork::Purpose::average, averages_)->time);
  finishing_.clear();
  std::swap(finishing_, jobs_);
  for (Job& job : finishing_) finish(job);
}

void SimulatedChannel::finish(Job& job) {
  switch (job.kind) {
    case Kind::collective:
      return finish_collective(job);
    case Kind::relay:
      return relay_.finish(*this);
    case Kind::message:
      return finish_message(job);
    default:
      return finish_round(job);
  }
}

void SimulatedChannel::finish_collective(Job& job) {
  const auto& collective = *network_.collective(job.purpose, job.number);
  wait_until(collective.time);
  if (job.all != nullptr) *job.all = collective.result;
  for (const Piece& piece : job.pieces)
    if (piece.in.count > 0)
      copy_bytes(piece.out.host_data(), collective.result.data() + piece.offset, piece.in.bytes());
  taken.emplace_back(job.purpose, job.number);
}

void SimulatedChannel::finish_message(Job& job) {
  auto& queue = inbox_.at({job.from, job.tag});
  const PointToPointMessage& message = queue.front();
  const ModelledLink& link = network_.options().time.link_between(job.from, node_);
  wait_until(message.time + link.latency + static_cast<double>(message.bytes.size()) * link.seconds_per_byte);
  if (!message.bytes.empty())
    copy_bytes(job.pieces[0].out.host_data(), message.bytes.data(), message.bytes.size());
  queue.pop_front();
}

const std::byte* SimulatedChannel::sent_by(const Source& source, const Post& own, std::size_t piece) const {
  const Post& theirs = network_[source.rank].post_of(own.stamp.round());
  const std::size_t which = lanes_ ? (source.lane == Lane::a ? 0 : 1) : piece;
  const std::size_t offset = own.pieces[which].offset;
  if (theirs.exchange().group.size() < 2) return theirs.bytes.data() + offset;
  return network_.mean_of(own.stamp.round(), theirs.exchange().group)->bytes.data() + offset;
}

double SimulatedChannel::arrival(const Post& own, std::size_t index) const {
  const Rank source = own.exchange().sources[index].rank;
  const Post& theirs = network_[source].post_of(own.stamp.round());
  const double place = own.places != nullptr ? (*own.places)[index] : place_among(theirs.exchange());
  const ModelledLink& link = network_.options().time.link_between(source, node_);
  double sent = theirs.time;
  if (theirs.exchange().group.size() > 1)
    sent = network_.mean_of(own.stamp.round(), theirs.exchange().group)->time;
  return sent + link.latency + place * static_cast<double>(theirs.bytes.size()) * link.seconds_per_byte;
}

bool SimulatedChannel::left_out(const Post& own, Rank source, IfLost rule) const {
  const Step round = own.stamp.round();
  if (network_.lost(round, source, node_)) return true;
  return rule == IfLost::mutual && network_.lost(round, node_, source);
}

double SimulatedChannel::lost_share(const Post& own) const {
  double share = 0;
  const Step round = own.stamp.round();
  for (const Destination& to : own.exchange().destinations) {
    if (!network_.lost(round, node_, to.rank)) continue;
    for (const Source& source : network_[to.rank].post_of(round).exchange().sources)
      if (source.rank == node_) share += source.weight * to.scale;
  }
  return share;
}

// The time of the last receipt: a message's time to the receiver, and a latency back.
double SimulatedChannel::receipt_arrival(const Post& own) const {
  double last = own.time;
  const auto& destinations = own.exchange().destinations;
  for (std::size_t i = 0; i < destinations.size(); ++i) {
    const TimeModel& time = network_.options().time;
    const ModelledLink& there = time.link_between(node_, destinations[i].rank);
    const double sent = static_cast<double>(i + 1) * static_cast<double>(own.bytes.size());
    last = std::max(last, own.time + there.latency + sent * there.seconds_per_byte +
                              time.link_between(destinations[i].rank, node_).latency);
  }
  return last;
}

// The own term first, then the sources in their order, which gives the same result as on a flock.
void SimulatedChannel::sum_up(const Post& own, std::size_t piece, std::vector<Term>& terms) const {
  const bool into_b = lanes_ && piece == 1;
  const std::byte* mine = own.bytes.data() + own.pieces[piece].offset;
  terms.clear();
  if (own.exchange().group.size() > 1) {
    mine = network_.mean_of(own.stamp.round(), own.exchange().group)->bytes.data() + own.pieces[piece].offset;
    if (own.exchange().sources.empty()) {
      terms.emplace_back(mine, 1);
      return;
    }
  }
  const IfLost rule = own.pieces[piece].if_lost;
  terms.emplace_back(mine, into_b ? own.exchange().self_weight_b : own.exchange().self_weight);
  terms.reserve(own.exchange().sources.size() + 1);
  const auto take = [&](const Source& source) {
    const double weight = into_b ? source.weight_b : source.weight;
    if (!left_out(own, source.rank, rule))
      terms.emplace_back(sent_by(source, own, piece), weight);
    else if (rule != IfLost::returned)
      terms[0].weight += weight;
  };
  if (own.receipts && rule == IfLost::returned) terms[0].weight += lost_share(own);
  if (!lanes_) {
    for (const Source& source : own.exchange().sources) take(source);
    return;
  }
  for (const Lane lane : {Lane::a, Lane::b})
    for (const Source& source : own.exchange().sources)
      if (source.lane == lane) take(source);
}

void SimulatedChannel::subtract_own(const Piece& piece, const Post& own,
                                    const std::vector<Term>& terms) const {
  const Group& group = own.exchange().group;
  const std::byte* mine = own.bytes.data() + piece.offset;
  std::vector<Term> others;
  if (group.size() > 1 && own.exchange().sources.empty() && group.size() <= kPairwise) {
    for (std::int64_t i = 0; i < group.size(); ++i)
      if (group[i] != node_)
        others.emplace_back(network_[group[i]].post_of(own.stamp.round()).bytes.data() + piece.offset,
                            1.0 / static_cast<double>(group.size()));
  } else if (group.size() < 2) {
    others.assign(terms.begin() + 1, terms.end());
  } else {
    combine(piece.out, terms);
    const Term difference[] = {{piece.out, 1}, {mine, -1}};
    combine(piece.out, difference);
    return;
  }
  combine_around(piece.in.dtype, piece.out.host_data(), nullptr, mine, others, piece.in.count);
}

void SimulatedChannel::finish_round(Job& job) {
  const Post& own = post_of(job.round);
  if (own.exchange().group.size() > 1) wait_until(network_.mean_of(job.round, own.exchange().group)->time);
  for (std::size_t i = 0; i < own.exchange().sources.size(); ++i)
    if (!network_.lost(job.round, own.exchange().sources[i].rank, node_)) wait_until(arrival(own, i));
  if (own.receipts) wait_until(receipt_arrival(own));
  for (std::size_t i = 0; i < job.pieces.size(); ++i) {
    const Piece& piece = job.pieces[i];
    sum_up(own, i, job.kind == Kind::share ? shared_ : terms_);
    if (job.kind == Kind::differences)
      subtract_own(piece, own, terms_);
    else if (job.kind == Kind::mix)
      combine(piece.out, terms_);
  }
}

}  // namespace starling::simulate
