#include "starling/record/timeline.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/record/log.h"
#include "starling/record/ticks.h"

namespace starling::record {
namespace {

constexpr std::uint64_t kRoom = 16'384;           // records (1 MiB) for which memory is reserved at once
constexpr std::uint64_t kMostRecords = 1u << 28;  // 16 GiB
constexpr std::uint64_t kRarely = 1u << 26;       // ticks between two readings of the clock, about 25 ms

// A spin lock, held for a few stores: a mutex would cost more.
class SpinGuard {
 public:
  explicit SpinGuard(std::atomic_flag& busy) : busy_(busy) {
    while (busy_.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~SpinGuard() { busy_.clear(std::memory_order_release); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  std::atomic_flag& busy_;
};

// Reads both clocks together; retries if the process was interrupted in between.
TimelineHeader::Moment both_clocks() {
  constexpr std::uint64_t kClose = 1000;  // ticks
  TimelineHeader::Moment moment{};
  for (int attempt = 0; attempt < 10; ++attempt) {
    moment.ticks = ticks();
    moment.ns = steady_ns();
    if (ticks() - moment.ticks < kClose) break;
  }
  return moment;
}

[[noreturn]] void refuse(const std::string& path) {
  throw Error(fmt::format("cannot write the timeline {}: {}", path, std::strerror(errno)));
}

}  // namespace

Timeline::Timeline(const std::string& path, Rank rank, Rank size, std::uint64_t records)
    : path_(path), capacity_(records) {
  if (records < 1 || records > kMostRecords)
    throw InvalidArgument(fmt::format("a timeline keeps 1 to {} events, not {}", kMostRecords, records));
  bytes_ = kTimelineRecordsAt + records * sizeof(TimelineRecord);
  unlink(path.c_str());  // a process that has mapped the old file keeps it
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) refuse(path);
  void* memory = MAP_FAILED;
  // Writing to a page without a disk block would kill the process.
  const int failed = posix_fallocate(file_, 0, kTimelineRecordsAt);
  if ((failed == 0 || failed == EOPNOTSUPP) && ftruncate(file_, static_cast<off_t>(bytes_)) == 0)
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (failed != 0 && failed != EOPNOTSUPP) errno = failed;
  if (memory == MAP_FAILED) {
    close(file_);
    refuse(path);
  }
  auto* base = static_cast<std::byte*>(memory);
  header_ = new (base) TimelineHeader{};
  names_ = reinterpret_cast<TimelineName*>(base + kTimelineNamesAt);
  ring_ = reinterpret_cast<TimelineRecord*>(base + kTimelineRecordsAt);
  header_->rank = rank;
  header_->size = size;
  header_->pid = getpid();
  header_->capacity = records;
  header_->wall_ns = clock_ns(CLOCK_REALTIME);
  header_->first = both_clocks();
  header_->later[0] = header_->first;
  header_->version = kTimelineVersion;
  header_->magic = kTimelineMagic;
  make_room(0);
}

Timeline::~Timeline() {
  munmap(header_, bytes_);
  close(file_);
}

std::string Timeline::part(const std::string& file, Rank rank) {
  return fmt::format("{}.{}", file, rank);
}

std::unique_ptr<Timeline> Timeline::from_environment(Rank rank, Rank size) {
  const std::string file = environment::kTimeline.text();
  if (file.empty()) return nullptr;
  const auto records = environment::kTimelineEvents.number(1, kMostRecords);
  try {
    return std::make_unique<Timeline>(part(file, rank), rank, size,
                                      records ? static_cast<std::uint64_t>(*records) : kDefaultRecords);
  } catch (const Error& error) {
    log(LogLevel::normal, fmt::format("{}; rank {} continues without one", error.what(), rank));
    return nullptr;
  }
}

std::uint16_t Timeline::name(std::string_view text) {
  const SpinGuard guard(busy_);
  const std::uint32_t count = header_->names.load(std::memory_order_relaxed);
  const auto known = numbers_.find(std::string(text));
  if (known != numbers_.end()) return known->second;
  constexpr auto kLast = static_cast<std::uint16_t>(kTimelineNames - 1);
  if (count > kLast) return kLast;
  if (count == kLast) text = kOtherNames;
  TimelineName& place = names_[count];
  std::ranges::copy(text.substr(0, place.size()), place.begin());
  header_->names.store(count + 1, std::memory_order_release);
  if (count < kLast) numbers_.emplace(text, static_cast<std::uint16_t>(count));
  return static_cast<std::uint16_t>(count);
}

// Prepares many pages at once: otherwise the first lap costs a page fault every 64 records.
void Timeline::make_room(std::uint64_t index) {
  const std::uint64_t count = std::min(kRoom, capacity_ - index);
  const std::size_t at = kTimelineRecordsAt + index * sizeof(TimelineRecord);
  const std::size_t bytes = count * sizeof(TimelineRecord);
  const int failed = posix_fallocate(file_, static_cast<off_t>(at), static_cast<off_t>(bytes));
  if (failed != 0 && failed != EOPNOTSUPP) {
    full_ = true;
    log(LogLevel::normal, fmt::format("the timeline {} stops here: {}", path_, std::strerror(failed)));
    return;
  }
  madvise(reinterpret_cast<std::byte*>(header_) + at, bytes, MADV_POPULATE_WRITE);  // fails on older kernels
  room_ = index + count;
}

void Timeline::note_time(std::uint64_t now) {
  const std::uint32_t latest = header_->latest.load(std::memory_order_relaxed);
  const std::uint64_t before = header_->later[latest].ticks;
  if (now < before + std::min(kRarely, (before - header_->first.ticks) / 16)) return;
  header_->later[1 - latest] = both_clocks();
  header_->latest.store(1 - latest, std::memory_order_release);
}

double Timeline::tick_rate() const {
  const TimelineHeader::Moment now = both_clocks();
  return 1e9 * static_cast<double>(now.ticks - header_->first.ticks) /
         static_cast<double>(now.ns - header_->first.ns);
}

void Timeline::write(const TimelineRecord& record) {
  const SpinGuard guard(busy_);
  if (next_ >= room_ && !full_) make_room(next_);
  if (full_) return;
  ring_[next_] = record;
  header_->written.store(++written_, std::memory_order_release);
  if (++next_ == capacity_) next_ = 0;
  note_time(record.end);
}

}  // namespace starling::record
