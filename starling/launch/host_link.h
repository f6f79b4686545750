#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

#include "starling/base/os/pipe.h"
#include "starling/launch/host_protocol.h"
#include "starling/launch/launcher.h"
#include "starling/launch/output.h"

namespace starling::launch {

/// The connection to one host of a job: a child process such as ssh, through which the host's launcher
/// receives requests and sends records. Owned by Job.
class HostLink {
 public:
  /// Our ends of the child's pipes. Output that is not a record goes to the sinks, labeled with the host's
  /// name.
  struct Ends {
    Descriptor requests, records, errors;
  };
  HostLink(const HostPlan& plan, Rank first, Ends ends, Sink& out, Sink& err);

  const std::string& name() const { return name_; }
  Rank first() const { return first_; }
  Rank last() const { return first_ + ranks_ - 1; }
  bool has(Rank rank) const { return rank >= first() && rank <= last(); }
  /// Whether the host's launcher has started all of its ranks.
  bool up() const { return up_; }

  /// Never blocks; requests stay in order.
  void send(const SignalRequest& request) { input_->append(encode(request)); }
  Sink& input() { return *input_; }
  int records() const { return records_.get(); }
  /// Reads available records; false if there are none.
  bool read_records(const std::function<void(const HostRecord&)>& take);
  /// Its output that is not a record.
  RankOutput& messages() { return messages_; }

 private:
  std::string name_;
  Rank first_, ranks_;
  Descriptor requests_, records_;
  std::unique_ptr<Sink> input_;
  LineSplitter lines_;
  RankOutput messages_;
  bool up_ = false;
};

}  // namespace starling::launch
