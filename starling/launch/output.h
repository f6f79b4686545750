#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::launch {

/// A buffered, nonblocking writer to standard output or error: a reader that stopped reading cannot keep the
/// launcher from handling signals and time limits.
class Sink {
 public:
  explicit Sink(int fd);

  void append(std::string_view text);
  /// Writes what does not block. After the first failed write, appended text is dropped.
  void write_some();
  bool waiting() const { return !pending_.empty(); }
  /// Whether writers should pause.
  bool full() const { return pending_.size() - written_ >= 256 * 1024; }
  int fd() const { return fd_; }
  bool color() const { return color_; }
  /// errno of the failed write, or 0.
  int error() const { return error_; }

 private:
  int fd_;
  bool color_;
  bool file_;
  int error_ = 0;
  std::string pending_;
  std::size_t written_ = 0;
};

/// Splits bytes into lines. Lines that are too long come in pieces, so that memory is bounded.
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

  /// Emits the rest that has no newline.
  template <typename Emit>
  void finish(Emit&& emit) {
    if (!partial_.empty()) emit(std::string_view(partial_), false);
    partial_.clear();
  }

 private:
  std::size_t longest_ = kLongest;
  std::string partial_;
};

/// The prefixes of output lines: by stream, and by whether the line is complete or a piece.
struct LineHeads {
  std::string plain[2][2], colored[2][2];

  const std::string& head(bool color, int which, bool ended) const {
    return (color ? colored : plain)[which][ended ? 0 : 1];
  }
};
/// "[label] ", colored at a terminal.
LineHeads label_heads(const std::string& label, std::size_t color);
/// The prefixes of a host's launcher, which the main launcher parses and removes.
LineHeads record_heads(Rank rank);

/// The output of one rank: its two pipes, its log file and its last lines. Owned by Job.
class RankOutput {
 public:
  static constexpr std::size_t kLastLines = 10;

  struct Stream {
    Descriptor pipe;
    Sink* sink;
    LineSplitter lines;
  };

  /// Pipes and log may be empty.
  RankOutput(LineHeads heads, Descriptor out, Sink& out_sink, Descriptor err, Sink& err_sink, Descriptor log);

  Stream& stream(int which) { return streams_[which]; }
  /// Reads what is available, at most `limit` bytes; closes the pipe at its end.
  void read_some(int which, std::size_t limit);
  /// Adds a line, or a piece of one, that did not come through the pipes.
  void add(int which, std::string_view text, bool ended) { emit(which, text, ended); }
  /// Reads the rest and completes partial lines.
  void finish();
  void write_log();
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  /// errno of a failed write to the log file, or 0.
  int log_error() const { return log_error_; }

 private:
  void emit(int which, std::string_view text, bool ended);

  LineHeads heads_;
  Stream streams_[2];  // NOLINT(modernize-use-default-member-init): made of the arguments
  Descriptor log_;
  int log_error_ = 0;
  std::string log_text_;
  std::deque<std::string> last_lines_;
};

}  // namespace starling::launch
