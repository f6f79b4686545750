#include "starling/flock/mailbox.h"

#include <cstring>
#include <fmt/format.h>

#include "starling/base/dtype.h"
#include "starling/flock/errors.h"

namespace starling {
namespace {

std::string describe(std::uint64_t count, std::uint8_t dtype, std::uint64_t schedule, Step step) {
  std::string text = fmt::format("{} x {}", count, name(static_cast<DType>(dtype)));
  if (schedule != 0) text += fmt::format(", step {}, schedule {:016x}", step, schedule);
  return text;
}

}  // namespace

std::uint64_t Mailbox::next(Counters& counters, Rank peer, std::uint64_t name) {
  const std::lock_guard lock(mutex_);
  return counters[{peer, name, 0}]++;
}

void Mailbox::drain(Rank source) {
  while (auto arrival = fabric_->poll(source)) {
    const MessageHeader& header = arrival->header();
    if (header.kind == static_cast<std::uint16_t>(MessageKind::complaint)) {
      complaints_.emplace_back(reinterpret_cast<const char*>(arrival->bytes().data()),
                               arrival->bytes().size());
      continue;
    }
    early_.emplace(Key{source, header.name, header.sequence}, std::move(*arrival));
  }
}

std::optional<Arrival> Mailbox::take(const Expectation& expectation, const std::string& operation) {
  const std::lock_guard lock(mutex_);
  drain(expectation.source);
  const auto found = early_.find({expectation.source, expectation.name, expectation.sequence});
  if (found == early_.end()) return std::nullopt;
  Arrival arrival = std::move(found->second);
  early_.erase(found);
  const MessageHeader& header = arrival.header();
  const bool same_count = expectation.any_count || header.count == expectation.count;
  if (same_count && header.dtype == expectation.dtype && header.schedule == expectation.schedule &&
      header.step == expectation.step)
    return arrival;
  const std::string text =
      fmt::format("{}: rank {} sent {}, but rank {} expected {}", operation, expectation.source,
                  describe(header.count, header.dtype, header.schedule, header.step), fabric_->rank(),
                  describe(expectation.count, expectation.dtype, expectation.schedule, expectation.step));
  complain(expectation.source, expectation, text);
  throw Mismatch(text);
}

void Mailbox::complain(Rank source, const Expectation& expectation, const std::string& text) {
  Outgoing message = fabric_->reserve(text.size());
  std::memcpy(message.bytes().data(), text.data(), text.size());
  MessageHeader header;
  header.kind = static_cast<std::uint16_t>(MessageKind::complaint);
  header.name = expectation.name;
  header.sequence = expectation.sequence;
  fabric_->post(std::move(message), header, {&source, 1});
}

void Mailbox::raise_complaints() {
  const std::lock_guard lock(mutex_);
  for (Rank source = 0; source < fabric_->size(); ++source)
    if (source != fabric_->rank()) drain(source);
  if (complaints_.empty()) return;
  const std::string text = std::move(complaints_.front());
  complaints_.erase(complaints_.begin());
  throw Mismatch(text);
}

}  // namespace starling
