#include "starling/flock/gather.h"

#include "starling/kernel/copy.h"

namespace starling::flock {
namespace {

Outgoing filled(Fabric& fabric, ConstBuffer in) {
  Outgoing message = fabric.reserve(in.bytes());
  copy_bytes(message.bytes().data(), in);
  return message;
}

std::byte* append(std::byte* to, const void* from, std::size_t bytes) {
  copy_bytes(to, from, bytes);
  return to + bytes;
}

}  // namespace

void GatherAll::begin() {
  arrivals_.clear();
  MessageHeader head = header_for(0, in_.dtype, in_.count);
  head.detail = with_shape(0, in_);
  post_to_others(filled(*flock_->fabric, in_), head);
  for (const Rank member : members()) {
    if (member == flock_->self()) continue;
    Expectation expected = expectation_of(0, member, in_.dtype, in_.count);
    expected.any_count = true;
    expected.detail_means = Detail::shape;
    expected.detail = head.detail;
    await(expected);
  }
}

bool GatherAll::go_on() {
  arrivals_ = take_arrivals();
  return true;
}

void GatherAll::deliver() {
  std::size_t total = in_.count;
  for (const Arrival& arrival : arrivals_) total += arrival.header().count;
  std::byte* to = room_(total).host_bytes();
  for (std::size_t at = 0; at <= arrivals_.size(); ++at) {
    if (at == place()) to = append(to, in_.host_data(), in_.bytes());
    if (at < arrivals_.size()) to = append(to, arrivals_[at].bytes().data(), arrivals_[at].bytes().size());
  }
  arrivals_.clear();
}

void GatherNeighbors::start() {
  std::vector<Rank> sources;
  std::vector<Rank> destinations;
  for (std::int64_t i = 0; i < plan_.exchange.group.size(); ++i)
    if (plan_.exchange.group[i] != flock_->self()) {
      sources.push_back(plan_.exchange.group[i]);
      destinations.push_back(plan_.exchange.group[i]);
    }
  for (const Source& source : plan_.exchange.sources) sources.push_back(source.rank);
  for (const Destination& to : plan_.exchange.destinations) destinations.push_back(to.rank);
  if (!destinations.empty()) {
    const Outgoing message = filled(*flock_->fabric, in_);
    MessageHeader head = header(in_.dtype, in_.count);
    head.detail = with_shape(plan_.schedule, in_);
    head.epoch = plan_.epoch;
    for (const Rank to : destinations) post(message, head, to);
  }
  for (const Rank source : sources) {
    Expectation expected =
        expectation(source, flock_->mailbox.next_from(topic_, source), in_.dtype, in_.count);
    expected.any_count = true;
    expected.detail_means = in_.shape == 0 ? Detail::schedule : Detail::layout;
    expected.detail = with_shape(plan_.schedule, in_);
    expected.epoch = plan_.epoch;
    await(expected);
  }
}

void GatherNeighbors::proceed() {
  std::size_t total = 0;
  for (const Awaited& awaited : awaited_)
    if (awaited.arrival) total += awaited.arrival.header().count;
  std::byte* to = room_(total).host_bytes();
  for (const Awaited& awaited : awaited_)
    if (awaited.arrival) to = append(to, awaited.arrival.bytes().data(), awaited.arrival.bytes().size());
  finish();
}

}  // namespace starling::flock
