#include "starling/flock/mailbox.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>

#include "starling/base/dtype.h"
#include "starling/base/name_hash.h"
#include "starling/flock/errors.h"
#include "starling/kernel/reduce.h"
#include "starling/topology/registry.h"

namespace starling::flock {
namespace {

constexpr std::size_t kReportedMismatches = 64;  // the number of reports remembered

// A number that the detail holds, as text. The upper half may be a hash of the shape.
std::string detail_text(Detail means, std::uint64_t detail) {
  if (means == Detail::weight) return fmt::format(", self weight {}", std::bit_cast<double>(detail));
  if (means == Detail::root) return fmt::format(", root {}", detail & 0xFFFFFFFFU);
  if (means == Detail::reduction)
    return fmt::format(", {}", name(static_cast<Reduction>(detail & 0xFFFFFFFFU)));
  return "";
}

// The difference between two details that are hashes, or have one in the upper half.
std::string difference_text(Detail means, std::uint64_t sent, std::uint64_t expected) {
  const bool other_upper_half = sent >> 32 != expected >> 32;
  if (sent == expected || means == Detail::none || means == Detail::weight) return "";
  if (means == Detail::schedule) return ", another schedule";
  if (means == Detail::layout) return ", other shapes or another schedule";
  return other_upper_half ? ", another shape" : "";
}

std::string kind_text(std::uint16_t kind) {
  constexpr const char* kTexts[] = {"a point-to-point message",
                                    "a mismatch report",
                                    "a neighbor average",
                                    "a neighbor average in parts",
                                    "an all-reduce",
                                    "a reduce-scatter",
                                    "a broadcast",
                                    "an all-gather",
                                    "a neighbor all-gather",
                                    "a relay",
                                    "an all-reduce in rounds",
                                    "a collective given up",
                                    "a device's failure",
                                    "a mark"};
  const std::size_t plain = kind & ~kReweightingKind;
  return plain < std::size(kTexts) ? kTexts[plain] : fmt::format("kind {}", kind);
}

const char* policy_text(std::uint16_t kind) {
  return (kind & kReweightingKind) != 0 ? "reweight" : "raise";
}

// Names the kind of memory only if the two sides differ in it.
std::string elements_text(std::uint64_t count, std::uint8_t code, bool with_memory) {
  const std::string text = fmt::format("{} x {}", count, name(dtype_in(code)));
  return with_memory ? fmt::format("{} in {}", text, name(memory_in(code))) : text;
}

bool names_schedule(Detail means) {
  return means == Detail::schedule || means == Detail::layout;
}

std::string describe(std::string text, Step step, std::uint32_t epoch, Detail means) {
  if (names_schedule(means)) text += fmt::format(", step {}", step);
  if (epoch != 0) text += fmt::format(", view {}", epoch);
  return text;
}

// Names of topologies with default parameters, by the lower halves of their hashes: other ranks mostly use
// one of these.
const std::map<std::uint32_t, std::string>& schedules_by_default() {
  static const auto all = [] {
    std::map<std::uint32_t, std::string> names;
    for (const Family& family : topology_families()) {
      try {
        names.emplace(static_cast<std::uint32_t>(hash_name(canonical_topology(family.name))), family.name);
      } catch (const InvalidArgument&) {  // a topology with a required parameter
      }
    }
    return names;
  }();
  return all;
}

// The header and the bytes come from another process: check that all bytes to be read have arrived.
void check_bytes(const Expectation& expected, const Arrival& arrival, const Topic& topic) {
  if (arrival.lost()) return;
  const DType dtype = dtype_in(expected.dtype);
  const std::uint64_t element = size_of(dtype);
  const std::uint64_t bytes = arrival.size();
  const bool right = expected.any_count ? bytes / element == arrival.header().count && bytes % element == 0
                                        // outgoing memory of the user's may be longer
                                        : bytes >= expected.bytes;
  if (!right)
    throw Error(fmt::format("{}: rank {} sent a damaged message: {} bytes, which are not {} x {}",
                            topic.described(), expected.source, bytes, arrival.header().count, name(dtype)));
}

bool has(const std::vector<std::uint64_t>& numbers, Rank peer) {
  return static_cast<std::size_t>(peer) < numbers.size();
}

std::string text_in(const Arrival& arrival) {
  return {reinterpret_cast<const char*>(arrival.bytes().data()), arrival.bytes().size()};
}

}  // namespace

std::string Topic::described(std::optional<Step> step) const {
  if (call) {
    const Step of_call = call->step.load(std::memory_order_relaxed);
    return call->call + (of_call >= 0 ? fmt::format(", step {}", of_call) : "") +
           (call->part.empty() ? "" : ", " + call->part);
  }
  return step ? fmt::format("{}, step {}", text, *step) : text;
}

void Mailbox::note_schedule(std::uint64_t hash, const std::string& name) {
  const std::lock_guard lock(mutex_);
  schedules_[static_cast<std::uint32_t>(hash)] = name;
}

std::string Mailbox::schedule_named(std::uint64_t detail) const {
  const auto lower = static_cast<std::uint32_t>(detail);
  if (const auto found = schedules_.find(lower); found != schedules_.end()) return found->second;
  const auto& usual = schedules_by_default();
  const auto found = usual.find(lower);
  return found == usual.end() ? "" : found->second;
}

void Mailbox::set_user_call(const std::string& beginning, std::shared_ptr<const UserCall> call) {
  const std::lock_guard lock(mutex_);
  for (auto& [hash, topic] : topics_)
    if (topic->text.starts_with(beginning + "/")) topic->call = call;
  calls_[beginning] = std::move(call);
}

// The call registered for the longest matching beginning of the name.
std::shared_ptr<const UserCall> Mailbox::call_of(std::string_view name) const {
  for (std::size_t end = name.rfind('/'); end != std::string_view::npos && end > 0;
       end = name.rfind('/', end - 1))
    if (const auto found = calls_.find(name.substr(0, end)); found != calls_.end()) return found->second;
  return nullptr;
}

std::string Mailbox::described_without_step(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto call = call_of(name);
  if (!call) return std::string(name);
  return call->part.empty() ? call->call : call->call + ", " + call->part;
}

std::string Mailbox::described(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  Topic topic;
  topic.text = name;
  topic.call = call_of(name);
  return topic.described();
}

Topic& Mailbox::topic(const Name& name, std::uint64_t flock) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t hash = name.hash() ^ flock;
  auto& topic = topics_[hash];
  if (!topic) {
    const auto n = static_cast<std::size_t>(fabric_->size());
    topic = std::make_unique<Topic>(Topic{std::string(name.text()), hash, std::vector<std::uint64_t>(n),
                                          std::vector<std::uint64_t>(n), 0});
    topic->call = call_of(topic->text);
  }
  if (topic->text != name.text())
    throw InvalidArgument(
        fmt::format("the names '{}' and '{}' have the same hash; rename one", topic->text, name.text()));
  return *topic;
}

std::uint64_t Mailbox::next_to(Topic& topic, Rank peer) {
  const std::lock_guard lock(mutex_);
  return topic.sent[static_cast<std::size_t>(peer)]++;
}
std::uint64_t Mailbox::next_from(Topic& topic, Rank peer) {
  const std::lock_guard lock(mutex_);
  return topic.expected[static_cast<std::size_t>(peer)]++;
}
std::uint64_t Mailbox::next_call(Topic& topic) {
  const std::lock_guard lock(mutex_);
  return topic.calls++;
}

bool Mailbox::sent(std::uint64_t name, Rank peer, std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto found = topics_.find(name);
  if (found == topics_.end()) return false;
  const Topic& topic = *found->second;
  return topic.calls > sequence ||
         (has(topic.sent, peer) && topic.sent[static_cast<std::size_t>(peer)] > sequence);
}

std::string Mailbox::text_of(std::uint64_t name) const {
  // The hashes of an operation's later phases and parts are its name's hash plus a small number.
  constexpr std::uint64_t kMostParts = 10'000;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t part = 0; part < kMostParts; ++part)
    if (const auto found = topics_.find(name - part); found != topics_.end())
      return found->second->call ? found->second->call->call : found->second->text;
  return fmt::format("another name ({:016x})", name);
}

void Mailbox::keep(Arrival arrival) {
  const MessageHeader& header = arrival.header();
  const Key key{header.name, header.sequence};
  if (header.kind == static_cast<std::uint16_t>(MessageKind::collective_aborted)) {
    if (given_up_.size() > kReportedMismatches) given_up_.erase(given_up_.begin());
    given_up_[{header.name, header.sequence}] = static_cast<Rank>(header.detail);
    return;
  }
  if (header.kind == static_cast<std::uint16_t>(MessageKind::device_failed)) {
    why_left_[arrival.source()] = text_in(arrival);
    return;
  }
  if (header.kind != static_cast<std::uint16_t>(MessageKind::mismatch_report)) {
    if (!unwanted_.empty()) {
      const auto found = unwanted_.find({arrival.source(), header.name, header.sequence});
      if (found != unwanted_.end() && header.kind == static_cast<std::uint16_t>(found->second)) {
        unwanted_.erase(found);
        return;
      }
    }
    early_[key].push_back(std::move(arrival));
    return;
  }
  // Both sides detected the same mismatch, so this rank has thrown it already.
  if (mismatch_reported(arrival.source(), key)) return;
  received_reports_.push_back({arrival.source(), key, text_in(arrival)});
  has_received_reports_ = true;
}

bool Mailbox::mismatch_reported(Rank with, const Key& about) const {
  return std::any_of(reported_mismatches_.begin(), reported_mismatches_.end(),
                     [&](const std::pair<Rank, Key>& reported) {
                       return reported.first == with && reported.second == about;
                     });
}

void Mailbox::drain(Rank source) {
  while (auto arrival = fabric_->poll(source)) keep(std::move(*arrival));
}

void Mailbox::drain_all() {
  const std::lock_guard lock(mutex_);
  for (Rank source = 0; source < fabric_->size(); ++source)
    if (source != fabric_->rank()) drain(source);
}

std::optional<Arrival> Mailbox::take_early(const Expectation& expected) {
  if (early_.empty()) return std::nullopt;
  const auto found = early_.find({expected.name, expected.sequence});
  if (found == early_.end()) return std::nullopt;
  auto& arrivals = found->second;
  const auto match = std::find_if(arrivals.begin(), arrivals.end(), [&](const Arrival& arrival) {
    return arrival.source() == expected.source &&
           (!expected.of_attempt || arrival.header().epoch == expected.epoch);
  });
  if (match == arrivals.end()) return std::nullopt;
  Arrival arrival = std::move(*match);
  arrivals.erase(match);
  if (arrivals.empty()) early_.erase(found);
  return arrival;
}

std::optional<Arrival> Mailbox::take(const Expectation& expected, const Topic& topic) {
  const std::lock_guard lock(mutex_);
  auto arrival = take_early(expected);
  while (!arrival) {
    arrival = fabric_->poll(expected.source);
    if (!arrival) return std::nullopt;
    const MessageHeader& header = arrival->header();
    const bool wanted = header.name == expected.name && header.sequence == expected.sequence &&
                        header.kind != static_cast<std::uint16_t>(MessageKind::mismatch_report) &&
                        header.kind != static_cast<std::uint16_t>(MessageKind::collective_aborted) &&
                        header.kind != static_cast<std::uint16_t>(MessageKind::device_failed) &&
                        (!expected.of_attempt || header.epoch == expected.epoch);
    if (wanted) break;
    keep(std::move(*arrival));
    arrival.reset();
  }
  const MessageHeader& header = arrival->header();
  const bool same_count = expected.any_count || header.count == expected.count;
  if (header.kind != static_cast<std::uint16_t>(expected.kind) || !same_count ||
      header.dtype != expected.dtype || (!expected.any_detail && header.detail != expected.detail) ||
      header.step != expected.step || header.epoch != expected.epoch)
    disagree(expected, header, topic);
  check_bytes(expected, *arrival, topic);
  return arrival;
}

void Mailbox::disagree(const Expectation& expected, const MessageHeader& header, const Topic& topic) {
  const bool other_memory = memory_in(header.dtype) != memory_in(expected.dtype);
  const std::string sent_elements = elements_text(header.count, header.dtype, other_memory);
  const Detail means = expected.detail_means;
  std::string sent = describe(sent_elements, header.step, header.epoch, means);
  std::string wanted = describe(elements_text(expected.count, expected.dtype, other_memory), expected.step,
                                expected.epoch, means);
  bool other_schedule = means == Detail::schedule && header.detail != expected.detail;
  if (!names_schedule(means)) {
    sent += detail_text(means, header.detail) + difference_text(means, header.detail, expected.detail);
    wanted += detail_text(means, expected.detail);
  } else {
    // With a single block the lower half of the detail is the schedule's hash alone. A known name tells that
    // this is the case.
    const auto halves = header.detail ^ expected.detail;
    const std::string own = schedule_named(expected.detail);
    other_schedule = other_schedule || (!own.empty() && (halves & 0xFFFFFFFFU) != 0);
    if (own.empty()) {
      sent += difference_text(means, header.detail, expected.detail);
    } else if (halves != 0 && !other_schedule) {
      sent += ", other shapes";
    } else {
      const std::string theirs = schedule_named(header.detail);
      sent += theirs.empty() ? ", another schedule" : ", schedule " + theirs;
      wanted += ", schedule " + own;
    }
  }
  const auto kind = static_cast<std::uint16_t>(expected.kind);
  if (header.kind != kind) {
    sent = fmt::format("{} of {}", kind_text(header.kind), sent_elements);
    wanted = kind_text(kind) + " of " + wanted;
  }
  std::string text = fmt::format("{}: rank {} sent {}, but rank {} expected {}", topic.described(),
                                 expected.source, sent, fabric_->rank(), wanted);
  if (other_schedule) text += "; set the same topology on every rank";
  // Counts of internal blocks are padded, so they would not help the user.
  if ((header.kind ^ kind) == kReweightingKind)
    text = fmt::format(
        "{}: on_peer_failure is {} on rank {} and {} on rank {}; choose the same on every rank, before the "
        "first operation",
        topic.described(), policy_text(header.kind), expected.source, policy_text(kind), fabric_->rank());
  else if (topic.call && header.count != expected.count && !expected.any_count)
    text = fmt::format("{}: ranks {} and {} have models of different sizes; give all ranks the same model",
                       topic.described(), expected.source, fabric_->rank());
  else if (topic.call && header.step != expected.step && header.kind == kind)
    text = fmt::format(
        "{}: rank {} is in step {} and rank {} in step {}: call backward() and step() equally often on all "
        "ranks",
        topic.described(), expected.source, header.step, fabric_->rank(), expected.step);
  const Key about{expected.name, expected.sequence};
  report_mismatch(expected.source, about);
  const Outgoing message = fabric_->reserve(text.size());
  std::memcpy(message.bytes().data(), text.data(), text.size());
  MessageHeader report;
  report.kind = static_cast<std::uint16_t>(MessageKind::mismatch_report);
  report.name = expected.name;
  report.sequence = expected.sequence;
  fabric_->post(message, report, expected.source);
  throw Mismatch(text);
}

void Mailbox::report_mismatch(Rank with, const Key& about) {
  std::erase_if(received_reports_,
                [&](const MismatchReport& report) { return report.from == with && report.about == about; });
  reported_mismatches_.emplace_back(with, about);
  if (reported_mismatches_.size() > kReportedMismatches + static_cast<std::size_t>(fabric_->size()))
    reported_mismatches_.pop_front();
}

void Mailbox::raised(const Expectation& expected, bool missing) {
  const std::lock_guard lock(mutex_);
  const Key about{expected.name, expected.sequence};
  if (!mismatch_reported(expected.source, about)) report_mismatch(expected.source, about);
  if (missing && !take_early(expected) && fabric_->alive(expected.source))
    unwanted_[{expected.source, expected.name, expected.sequence}] = expected.kind;
}

void Mailbox::raised(Rank to, std::uint64_t name, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (const Key about{name, sequence}; !mismatch_reported(to, about)) report_mismatch(to, about);
}

void Mailbox::refuse(const Expectation& expected) {
  const std::lock_guard lock(mutex_);
  unwanted_[{expected.source, expected.name, expected.sequence}] = expected.kind;
}

bool Mailbox::overtaken(const Expectation& expected) const {
  const std::lock_guard lock(mutex_);
  constexpr std::uint64_t kAhead = 32;  // a neighbor is never further ahead
  const auto here = [&](std::uint64_t sequence) {
    const auto found = early_.find({expected.name, sequence});
    return found != early_.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](const Arrival& arrival) { return arrival.source() == expected.source; });
  };
  if (here(expected.sequence)) return false;
  for (std::uint64_t later = 1; later <= kAhead; ++later)
    if (here(expected.sequence + later)) return true;
  return false;
}

void Mailbox::raise_reported_mismatch() {
  if (!has_received_reports_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (received_reports_.empty()) {
    has_received_reports_ = false;
    return;
  }
  const std::string text = std::move(received_reports_.front().text);
  received_reports_.erase(received_reports_.begin());
  throw Mismatch(text);
}

std::string Mailbox::why_left(Rank peer) {
  const std::lock_guard lock(mutex_);
  drain(peer);
  const auto found = why_left_.find(peer);
  return found == why_left_.end() ? std::string() : found->second;
}

std::optional<Rank> Mailbox::given_up(std::uint64_t name, std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto found = given_up_.find({name, sequence});
  if (found == given_up_.end()) return std::nullopt;
  return found->second;
}

std::uint32_t Mailbox::newest_epoch(std::uint64_t name, std::uint64_t sequence, MessageKind kind) const {
  const std::lock_guard lock(mutex_);
  std::uint32_t newest = 0;
  if (const auto found = early_.find({name, sequence}); found != early_.end())
    for (const Arrival& arrival : found->second)
      if (arrival.header().kind == static_cast<std::uint16_t>(kind))
        newest = std::max(newest, arrival.header().epoch);
  return newest;
}

void Mailbox::forget(std::uint64_t name, std::uint64_t sequence, MessageKind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = early_.find({name, sequence});
  if (found == early_.end()) return;
  std::erase_if(found->second, [&](const Arrival& arrival) {
    return arrival.header().kind == static_cast<std::uint16_t>(kind);
  });
  if (found->second.empty()) early_.erase(found);
}

}  // namespace starling::flock
