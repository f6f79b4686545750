#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/os/pipe.h"
#include "starling/launch/job.h"

// A job over several hosts. The main launcher starts one launcher per host through ssh or a similar program;
// those start the ranks, report their output and exits, and forward signals to them.

namespace starling::launch {

void Job::start_hosts() {
  ChildPlan plan = common_plan();
  members_.reserve(static_cast<std::size_t>(options_.ranks));
  links_.reserve(options_.hosts.size());
  for (const HostPlan& host : options_.hosts) {
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    do_not_block(in.write_end);
    do_not_block(out.read_end);
    do_not_block(err.read_end);
    plan.arguments = options_.command;
    plan.arguments.push_back(host.name);
    plan.arguments.push_back(host.line);
    plan.input = in.read_end.get();
    plan.output = out.write_end.get();
    plan.error = err.write_end.get();
    start(plan);
    const auto first = static_cast<Rank>(members_.size());
    links_.emplace_back(
        host, first,
        HostLink::Ends{std::move(in.write_end), std::move(out.read_end), std::move(err.read_end)}, out_sink_,
        *err_);
    for (Rank rank = first; rank < first + host.ranks; ++rank, ++living_) {
      const auto number = static_cast<std::size_t>(rank);
      members_.push_back({RankOutput(label_heads(std::to_string(rank), number), Descriptor(), out_sink_,
                                     Descriptor(), *err_, std::move(logs_[number]))});
    }
  }
}

// If our output is not read, stops reading the ranks' output, too, except while the job is being ended.
bool Job::wants_records() const {
  return killed_ || timed_out_ || !(out_sink_.full() || err_->full());
}

void Job::read_records(HostLink& link) {
  link.read_records([&](const HostRecord& record) { on_record(link, record); });
  for (Rank rank = link.first(); rank <= link.last(); ++rank)
    members_[static_cast<std::size_t>(rank)].output.write_log();
}

void Job::on_record(HostLink& link, const HostRecord& record) {
  Member& member = members_[static_cast<std::size_t>(std::max(record.rank, link.first()))];
  if (record.kind == HostRecordKind::up) return;
  if (record.kind == HostRecordKind::notice) {
    if (!record.text.empty()) on_notice(record.text.front());
    return;
  }
  if (record.kind == HostRecordKind::ended) {
    int status = 0;
    std::from_chars(record.text.data(), record.text.data() + record.text.size(), status);
    if (member.alive) on_exit(record.rank, status);
    return;
  }
  if (out_sink_.full() && (killed_ || timed_out_)) return;  // unread output must not delay the end
  const bool is_error = record.kind == HostRecordKind::err || record.kind == HostRecordKind::err_piece;
  const bool whole = record.kind == HostRecordKind::out || record.kind == HostRecordKind::err;
  member.output.add(is_error ? 1 : 0, record.text, whole);
}

// The ranks of a host end before the connection, unless they could not be started or the connection broke.
void Job::on_link_end(std::size_t host, int status) {
  HostLink& link = links_[host];
  while (link.read_records([&](const HostRecord& record) { on_record(link, record); })) {
  }
  link.messages().read_some(1, 1 << 20);
  std::vector<std::string> lost;
  for (Rank rank = link.first(); rank <= link.last(); ++rank) {
    Member& member = members_[static_cast<std::size_t>(rank)];
    member.output.write_log();
    if (!member.alive) continue;
    member.alive = false;
    // A connection that ends with status 0 although ranks are missing counts as failed.
    member.ending.status = status == 0 ? 1 << 8 : status;
    --living_;
    lost.push_back(std::to_string(rank));
    if (options_.on_exit) options_.on_exit(rank);
  }
  if (lost.empty()) return;
  const std::string program = std::filesystem::path(options_.command.front()).filename().string();
  const std::string how = fmt::format("{}: {}", program, Ending{status}.text());
  const Ending ending{status == 0 ? 1 << 8 : status};
  fail("host " + link.name(),
       link.up()
           ? fmt::format("was lost with rank{} {} ({})", lost.size() == 1 ? "" : "s", join_words(lost), how)
           : fmt::format("did not start its ranks ({})", how),
       ending, link.messages(), !link.up());
}

// A connection whose launcher has not started yet cannot take requests: its local process gets the signal.
void Job::signal_hosts(int signal, bool whole_group) {
  const bool ends =
      signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT || signal == SIGKILL;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!children_[i].alive) continue;
    if (ends && !links_[i].up()) {
      kill(-children_[i].pid, signal);
    } else {
      links_[i].send({signal, whole_group});
    }
  }
}

// On a host: requests of the main launcher.
void Job::read_signal_requests() {
  char buffer[4096];
  const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got > 0) {
    request_lines_.feed(std::string_view(buffer, static_cast<std::size_t>(got)),
                        [&](std::string_view line, bool) {
                          if (const auto request = parse_signal_request(line)) on_signal_request(*request);
                        });
    return;
  }
  takes_signal_requests_ = false;  // the main launcher or the connection to it is gone
  if (sweeping_) {
    kill_at_ = Clock::now();
  } else {
    stop();
  }
}

void Job::on_signal_request(const SignalRequest& request) {
  if (request.signal == SIGKILL) {
    kill_now();
  } else if (sweeping_) {
    if (request.signal == SIGTERM || request.signal == SIGINT) kill_at_ = Clock::now();
  } else {
    signal_ranks(request.signal, request.whole_group);
  }
}

void Job::report_exit(Rank rank, int status) {
  out_sink_.append(record_head(HostRecordKind::ended, options_.part->first + rank) + std::to_string(status) +
                   "\n");
}

}  // namespace starling::launch
