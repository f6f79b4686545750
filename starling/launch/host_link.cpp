#include "starling/launch/host_link.h"

#include <array>
#include <cerrno>

namespace starling::launch {
namespace {

constexpr std::size_t kLongestRecordHead = 64;

}  // namespace

HostLink::HostLink(const HostPlan& plan, Rank first, Ends ends, Sink& out, Sink& err)
    : name_(plan.name),
      first_(first),
      ranks_(plan.ranks),
      requests_(std::move(ends.requests)),
      records_(std::move(ends.records)),
      input_(std::make_unique<Sink>(requests_.get())),
      lines_(LineSplitter::kLongest + kLongestRecordHead),
      messages_(label_heads(plan.name, static_cast<std::size_t>(first)), Descriptor(), out,
                std::move(ends.errors), err, Descriptor()) {
  input_->append(plan.start_message);
}

bool HostLink::read_records(const std::function<void(const HostRecord&)>& take) {
  const auto on_line = [&](std::string_view line, bool ended) {
    const auto record = parse_record(line);
    if (record && (record->kind == HostRecordKind::up || has(record->rank))) {
      up_ = true;
      take(*record);
    } else if (!line.empty()) {
      messages_.add(0, line, ended);
    }
  };
  static thread_local std::array<char, 64 * 1024> buffer;
  while (records_) {
    const ssize_t got = read(records_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got > 0) {
      lines_.feed(std::string_view(buffer.data(), static_cast<std::size_t>(got)), on_line);
      return true;
    }
    records_.reset();
    lines_.finish(on_line);
  }
  return false;
}

}  // namespace starling::launch
