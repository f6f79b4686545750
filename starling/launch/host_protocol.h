#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/types.h"

// The protocol between the launchers of a multi-host job. The main launcher sends each host's launcher, on
// its standard input, a start message and then signal requests; the end of that input means that the main
// launcher is gone. Each host's launcher answers with records on its standard output.

namespace starling::launch {

/// What a host's launcher needs to start its ranks. It comes through standard input, so that it is not
/// visible in the list of processes.
struct StartMessage {
  std::string token;
  Rank first = 0;  // the first rank on this host
  Rank ranks = 1;  // on this host
  Rank size = 1;   // ranks of the job
  bool bind = false;
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<std::string> command;
};

/// The limit on a start message's bytes: as many as Linux allows for a program's arguments and environment.
inline constexpr std::size_t kLongestStartMessage = std::size_t{6} << 20;

std::string encode(const StartMessage& message);
/// Reads exactly one start message. Throws Error if the input ends early, is too long or is something else.
StartMessage read_start_message(int input);

/// A signal for the ranks of a host, or for their process groups. SIGKILL ends the job on that host.
struct SignalRequest {
  int signal = 0;
  bool whole_group = false;
};
std::string encode(const SignalRequest& request);
std::optional<SignalRequest> parse_signal_request(std::string_view line);

/// The kind of a record.
enum class HostRecordKind : char {
  up = 'u',  // all ranks have started; rank and text are unused
  out = 'o',
  out_piece = 'O',  // a piece of a line that continues
  err = 'e',
  err_piece = 'E',
  notice = 'n',  // from a rank to its launcher; see base/launcher_notice.h
  ended = 'x',   // the text is the status of waitpid
};

/// A line that a host's launcher sends.
struct HostRecord {
  HostRecordKind kind = HostRecordKind::up;
  Rank rank = 0;
  std::string_view text;
};
/// The prefix of a record; its text follows on the same line.
std::string record_head(HostRecordKind kind, Rank rank);
/// Parses a line; empty if it is not a record but, e.g., output of a login shell.
std::optional<HostRecord> parse_record(std::string_view line);

}  // namespace starling::launch
