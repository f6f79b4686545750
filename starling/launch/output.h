#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>

#include "starling/base/types.h"
#include "starling/launch/fd.h"

namespace starling::launch {

/// Where lines go: our standard output or error. Writes only what will not block, so that a reader who
/// stopped reading cannot keep us from signals and time limits.
class Sink {
 public:
  explicit Sink(int fd);

  void append(std::string_view text);
  /// What is appended after the first failed write is dropped.
  void write_some();
  bool waiting() const { return !pending_.empty(); }
  /// Whoever feeds it should pause.
  bool full() const { return pending_.size() - written_ >= 256 * 1024; }
  int fd() const { return fd_; }
  bool colour() const { return colour_; }
  /// errno of the failed write, else 0.
  int error() const { return error_; }

 private:
  int fd_;
  bool colour_;
  bool file_;
  int error_ = 0;
  std::string pending_;
  std::size_t written_ = 0;
};

/// Cuts bytes into lines. A line that grows too long comes in pieces, so memory stays bounded.
class LineSplitter {
 public:
  static constexpr std::size_t kLongest = 64 * 1024;

  LineSplitter() = default;
  explicit LineSplitter(std::size_t longest) : longest_(longest) {}

  /// Calls emit(text, ended) for every line without its newline; `ended` is false for a piece.
  template <typename Emit>
  void feed(std::string_view bytes, Emit&& emit) {
    while (!bytes.empty()) {
      const std::size_t newline = bytes.find('\n');
      const std::size_t room = longest_ - partial_.size();
      const std::size_t take = std::min({newline, bytes.size(), room});
      const bool ended = take == newline;
      if (partial_.empty() && (ended || take == room)) {
        emit(bytes.substr(0, take), ended);
      } else {
        partial_.append(bytes.substr(0, take));
        if (ended || take == room) {
          emit(std::string_view(partial_), ended);
          partial_.clear();
        }
      }
      bytes.remove_prefix(take + (ended ? 1 : 0));
    }
  }

  /// What is left without a newline.
  template <typename Emit>
  void finish(Emit&& emit) {
    if (!partial_.empty()) emit(std::string_view(partial_), false);
    partial_.clear();
  }

 private:
  std::size_t longest_ = kLongest;
  std::string partial_;
};

/// What stands before lines: by stream, and by whether the line goes on.
struct LineHeads {
  std::string plain[2][2], coloured[2][2];

  const std::string& head(bool colour, int which, bool ended) const {
    return (colour ? coloured : plain)[which][ended ? 0 : 1];
  }
};
/// "[label] ", in one of some colours at a terminal.
LineHeads label_heads(const std::string& label, std::size_t colour);
/// Those of a host's launcher, which the one that started it takes off again.
LineHeads record_heads(Rank rank);

/// The output of one rank: its two pipes, its log file, its last lines.
class RankOutput {
 public:
  static constexpr std::size_t kLastLines = 10;

  struct Stream {
    Fd pipe;
    Sink* sink;
    LineSplitter lines;
  };

  /// Pipes and log may be empty.
  RankOutput(LineHeads heads, Fd out, Sink& out_sink, Fd err, Sink& err_sink, Fd log);

  Stream& stream(int which) { return streams_[which]; }
  /// Reads what is there now, at most `limit` bytes; closes the pipe at its end.
  void read_some(int which, std::size_t limit);
  /// A line, or a piece of one, that came in another way.
  void add(int which, std::string_view text, bool ended) { emit(which, text, ended); }
  /// Reads what is left and ends partial lines.
  void finish();
  void write_log();
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  /// errno of a failed write to the log file, else 0.
  int log_error() const { return log_error_; }

 private:
  void emit(int which, std::string_view text, bool ended);

  LineHeads heads_;
  Stream streams_[2];
  Fd log_;
  int log_error_ = 0;
  std::string log_text_;
  std::deque<std::string> last_lines_;
};

}  // namespace starling::launch
