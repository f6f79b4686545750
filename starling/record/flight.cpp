#include "starling/record/flight.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

#include "starling/base/environment.h"
#include "starling/record/log.h"
#include "starling/record/ticks.h"

namespace starling::record {
namespace {

constexpr std::size_t kLogged = 8;  // lines in the log, if no file was requested
constexpr std::uint64_t kPause = 1'000'000'000;
constexpr auto relaxed = std::memory_order_relaxed;

std::string wall_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1,
                     local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec);
}

}  // namespace

std::vector<std::string> Flight::lines(std::size_t most, const Describe& describe) const {
  const std::uint64_t now = coarse_ns();
  const std::uint64_t last = next_.load(relaxed);
  std::vector<std::string> lines;
  for (std::uint64_t number = last - std::min<std::uint64_t>(last, std::min(most, kKept)); number < last;
       ++number) {
    const Slot& slot = slots_[number % kKept];
    if (slot.number.load(std::memory_order_acquire) != number + 1) continue;  // another thread is writing it
    const std::string* text = slot.name.load(relaxed);
    const std::uint32_t count = slot.peer_count.load(relaxed);
    std::string peers;
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(count, kPeers); ++i)
      peers += fmt::format("{}{}", i == 0 ? (count == 1 ? " with rank " : " with ranks ") : ", ",
                           slot.peers[i].load(relaxed));
    if (count > kPeers) peers += fmt::format(" and {} more", count - kPeers);
    const State state = slot.state.load(relaxed);
    const auto since = static_cast<double>(now - std::min(now, slot.start.load(relaxed)));
    const Step step = slot.step.load(relaxed);
    lines.push_back(fmt::format("{:9.3f} s ago {} ({}{}){}: {}", since * 1e-9,
                                describe ? describe(*text) : *text, name(slot.kind.load(relaxed)),
                                step == kNoStep ? "" : fmt::format(", step {}", step), peers,
                                state == State::started ? "has not ended"
                                : state == State::ended ? "ended"
                                                        : "FAILED"));
  }
  return lines;
}

void Flight::dump(const std::string& why, const Describe& describe) {
  const std::uint64_t now = now_();
  std::uint64_t before = dumped_.load(relaxed);
  if (before != 0 && now - before < kPause) return;
  if (!dumped_.compare_exchange_strong(before, now, relaxed)) return;
  const std::string folder = environment::kFlight.text();
  const bool to_file = !folder.empty();
  const auto last = lines(to_file ? kKept : kLogged, describe);
  std::string text = fmt::format("rank {}, {}: {}\n", rank_, wall_time(), why);
  text += fmt::format("  the last {} operations, newest last:", last.size());
  for (const std::string& line : last) text += "\n  " + line;
  if (!to_file) {
    log(LogLevel::normal, text);
    return;
  }
  const auto path = std::filesystem::path(folder) / fmt::format("flight-{}.txt", rank_);
  std::error_code ignored;  // then the file cannot be written either
  std::filesystem::create_directories(folder, ignored);
  std::ofstream out(path, std::ios::app);
  out << text << "\n\n";
  out.close();
  if (!out) log(LogLevel::normal, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace starling::record
