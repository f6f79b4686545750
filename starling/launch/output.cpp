#include "starling/launch/output.h"

#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "starling/base/environment.h"
#include "starling/launch/host_protocol.h"

namespace starling::launch {
namespace {

// No red, which would look like an error. The leading 0 resets any color that a rank left on.
constexpr std::array kColors = {36, 33, 35, 32, 34, 96, 93, 95, 92, 94};

bool is_file(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

Sink::Sink(int fd)
    : fd_(fd), color_(isatty(fd) != 0 && !environment::kNoColor.is_set()), file_(is_file(fd)) {}

void Sink::append(std::string_view text) {
  if (error_ == 0) pending_.append(text);
}

void Sink::write_some() {
  // poll() guarantees this much room in a pipe, and no more.
  constexpr std::size_t kSafe = 4096;
  const std::size_t left = pending_.size() - written_;
  const ssize_t wrote = write(fd_, pending_.data() + written_, file_ ? left : std::min(left, kSafe));
  if (wrote < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    error_ = errno;
  } else {
    written_ += static_cast<std::size_t>(wrote);
  }
  if (error_ != 0 || written_ == pending_.size()) {
    pending_.clear();
    written_ = 0;
  } else if (written_ >= 64 * 1024) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

LineHeads label_heads(const std::string& label, std::size_t color) {
  LineHeads heads;
  const std::string plain = fmt::format("[{}] ", label);
  const std::string colored = fmt::format("\033[0;{}m[{}]\033[0m ", kColors[color % kColors.size()], label);
  for (const int which : {0, 1}) {
    std::ranges::fill(heads.plain[which], plain);
    std::ranges::fill(heads.colored[which], colored);
  }
  return heads;
}

LineHeads record_heads(Rank rank) {
  LineHeads heads;
  const HostRecordKind kinds[2][2] = {{HostRecordKind::out, HostRecordKind::out_piece},
                                      {HostRecordKind::err, HostRecordKind::err_piece}};
  for (const int which : {0, 1})
    for (const int piece : {0, 1})
      heads.plain[which][piece] = heads.colored[which][piece] = record_head(kinds[which][piece], rank);
  return heads;
}

RankOutput::RankOutput(LineHeads heads, Descriptor out, Sink& out_sink, Descriptor err, Sink& err_sink,
                       Descriptor log)
    : heads_(std::move(heads)),
      streams_{{std::move(out), &out_sink, {}}, {std::move(err), &err_sink, {}}},
      log_(std::move(log)) {}

void RankOutput::read_some(int which, std::size_t limit) {
  Stream& stream = streams_[which];
  const auto take = [&](std::string_view text, bool ended) { emit(which, text, ended); };
  static thread_local std::array<char, 64 * 1024> buffer;
  for (std::size_t total = 0; stream.pipe && total < limit;) {
    const ssize_t got = read(stream.pipe.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      stream.pipe.reset();
      stream.lines.finish(take);
      break;
    }
    stream.lines.feed(std::string_view(buffer.data(), static_cast<std::size_t>(got)), take);
    total += static_cast<std::size_t>(got);
  }
  write_log();
}

void RankOutput::finish() {
  for (int which : {0, 1}) {
    // A pipe holds a megabyte at most; more would come from a process outside the job.
    read_some(which, 4 << 20);
    Stream& stream = streams_[which];
    stream.lines.finish([&](std::string_view text, bool ended) { emit(which, text, ended); });
  }
  write_log();
}

void RankOutput::emit(int which, std::string_view text, bool ended) {
  constexpr std::size_t kShown = 400;
  Sink& sink = *streams_[which].sink;
  sink.append(heads_.head(sink.color(), which, ended));
  sink.append(text);
  sink.append("\n");
  if (log_) {
    log_text_.append(text);
    if (ended) log_text_.push_back('\n');
  }
  std::string line;
  if (last_lines_.size() == kLastLines) {
    line = std::move(last_lines_.front());
    last_lines_.pop_front();
  }
  line.assign(text.substr(0, kShown));
  if (text.size() > kShown) line += "...";
  last_lines_.push_back(std::move(line));
}

void RankOutput::write_log() {
  const std::string all = std::exchange(log_text_, {});
  std::string_view text = all;
  while (log_ && !text.empty()) {
    const ssize_t wrote = write(log_.get(), text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      log_error_ = errno;
      log_.reset();
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

}  // namespace starling::launch
