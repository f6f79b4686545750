#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/types.h"

// What the launchers of a job over several hosts tell each other. The one that was started by hand tells each
// host's, on its standard input, a greeting and then orders; the end of that input means that it is gone.
// Each host's answers on its standard output, in records.

namespace starling::launch {

/// What a host's launcher has to know before it can start its ranks. It comes through standard input, so that
/// a list of processes shows nothing of it.
struct Greeting {
  std::string token;
  Rank first = 0;  // of the ranks there
  Rank ranks = 1;  // there
  Rank size = 1;   // of the job
  bool bind = false;
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<std::string> command;
};

std::string encode(const Greeting& greeting);
/// Not a byte more than it. Throws Error where the input ends before or is something else.
Greeting read_greeting(int input);

/// A signal for the ranks, or their whole process groups. SIGKILL ends the job there.
struct Order {
  int signal = 0;
  bool whole_group = false;
};
std::string encode(const Order& order);
std::optional<Order> parse_order(std::string_view line);

enum class RecordKind : char {
  up = 'u',  // all ranks have started; rank and text mean nothing
  out = 'o',
  out_piece = 'O',  // the line goes on
  err = 'e',
  err_piece = 'E',
  notice = 'n',  // of any rank to its launcher; see base/launcher_notice.h
  ended = 'x',   // the text is the status as waitpid gives it
};

struct Record {
  RecordKind kind = RecordKind::up;
  Rank rank = 0;
  std::string_view text;
};
/// What stands before the text of a record, which is a line.
std::string record_head(RecordKind kind, Rank rank);
/// Nothing for what others have written: a login shell may greet.
std::optional<Record> parse_record(std::string_view line);

}  // namespace starling::launch
