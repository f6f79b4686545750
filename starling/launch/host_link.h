#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

#include "starling/launch/launcher.h"
#include "starling/launch/output.h"
#include "starling/launch/pipe.h"
#include "starling/launch/wire.h"

namespace starling::launch {

/// The way to one host of a job: a process, such as ssh, through which its launcher hears orders and answers.
class HostLink {
 public:
  /// The ends of its pipes that are ours. What it says beside records goes to the sinks behind its name.
  struct Ends {
    Fd orders, records, errors;
  };
  HostLink(const HostPlan& plan, Rank first, Ends ends, Sink& out, Sink& err);

  const std::string& name() const { return name_; }
  Rank first() const { return first_; }
  Rank last() const { return first_ + ranks_ - 1; }
  bool has(Rank rank) const { return rank >= first() && rank <= last(); }
  /// Whether its launcher has started all of its ranks.
  bool up() const { return up_; }

  /// Orders and records stay in order; nothing blocks.
  void send(const Order& order) { to_it_->append(encode(order)); }
  Sink& to_it() { return *to_it_; }
  int records() const { return records_.get(); }
  /// Reads some of what is there now; false where that is nothing.
  bool read_records(const std::function<void(const Record&)>& take);
  /// What it said beside records.
  RankOutput& words() { return words_; }

 private:
  std::string name_;
  Rank first_, ranks_;
  Fd orders_, records_;
  std::unique_ptr<Sink> to_it_;
  LineSplitter lines_;
  RankOutput words_;
  bool up_ = false;
};

}  // namespace starling::launch
