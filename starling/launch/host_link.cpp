#include "starling/launch/host_link.h"

#include <array>
#include <cerrno>

namespace starling::launch {
namespace {

constexpr std::size_t kLongestHead = 64;

}  // namespace

HostLink::HostLink(const HostPlan& plan, Rank first, Ends ends, Sink& out, Sink& err)
    : name_(plan.name),
      first_(first),
      ranks_(plan.ranks),
      orders_(std::move(ends.orders)),
      records_(std::move(ends.records)),
      to_it_(std::make_unique<Sink>(orders_.get())),
      lines_(LineSplitter::kLongest + kLongestHead),
      words_(label_heads(plan.name, static_cast<std::size_t>(first)), Fd(), out, std::move(ends.errors), err,
             Fd()) {
  to_it_->append(plan.greeting);
}

bool HostLink::read_records(const std::function<void(const Record&)>& take) {
  const auto on_line = [&](std::string_view line, bool ended) {
    const auto record = parse_record(line);
    if (record && (record->kind == RecordKind::up || has(record->rank))) {
      up_ = true;
      take(*record);
    } else if (!line.empty()) {
      words_.add(0, line, ended);
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
