#pragma once

#include <map>
#include <vector>

#include "starling/method/channel.h"
#include "starling/simulate/time_model.h"

namespace starling::simulate {

class SimulatedChannel;

/// What the simulated nodes talk about and how long that takes.
struct NetworkOptions {
  SchedulePtr schedule;  // null for methods that follow none
  RelayRule relay;
  TimeModel time;
  double drop = 0;  // share of neighbours' messages that are lost
  std::uint64_t seed = 0;
};

/// All nodes of a simulated flock in one process: their channels, and what they agree on. Nodes may run on
/// several threads between two calls of deliver(); what one sends there, the others see after the next.
class SimulatedNetwork {
 public:
  SimulatedNetwork(Rank nodes, NetworkOptions options);

  Rank size() const { return static_cast<Rank>(nodes_.size()); }
  const NetworkOptions& options() const { return options_; }
  /// The channel of one node's only block; lives at most as long as the network.
  ChannelPtr connect(Rank node);
  SimulatedChannel& operator[](Rank node) const { return *nodes_[static_cast<std::size_t>(node)]; }
  void deliver();

  /// Counts calls of deliver(): what was sent in an earlier pass is there.
  std::int64_t pass() const { return pass_; }
  bool lost(Step round, Rank from, Rank to) const { return options_.drop > 0 && drawn_lost(round, from, to); }

  /// A mean within a group of a round, computed once for all its members.
  struct GroupMean {
    std::int64_t there = 0;  // members
    bool done = false;
    double time = 0;  // when its last member began, and the time it takes
    std::vector<std::byte> bytes;
  };
  const GroupMean* mean_of(Step round, const Group& group) const;

  /// Something that everybody takes part in, by its number.
  struct Meeting {
    Rank there = 0;
    double time = 0;
    std::vector<std::byte> result;
    std::map<Rank, std::vector<std::byte>> parts;  // of an average, until all are there
    Rank taken = 0;
  };
  enum class Purpose { reduction, gathering, broadcast, average };
  const Meeting* meeting(Purpose purpose, std::int64_t number) const;
  /// The last one who takes a result clears it away.
  void take(Purpose purpose, std::int64_t number);
  /// All contributions of an average that nobody waits for, as soon as the last one is there; not for
  /// threads.
  void contribute(std::int64_t number, ConstBuffer block, double time);

  /// The slowest link from a node to its next, which bounds collectives.
  const ModelledLink& slowest() const { return slowest_; }
  double reduction_seconds(std::int64_t members, std::size_t bytes) const;

 private:
  bool drawn_lost(Step round, Rank from, Rank to) const;
  void gather_groups(SimulatedChannel& node);
  void finish_group(Step round, const Group& group, GroupMean& mean);
  void hold_meetings();

  NetworkOptions options_;
  std::vector<SimulatedChannel*> nodes_;
  std::int64_t pass_ = 0;
  ModelledLink slowest_;
  std::map<std::pair<Step, Rank>, GroupMean> means_;  // by round and first member
  std::map<std::pair<Purpose, std::int64_t>, Meeting> meetings_;
};

}  // namespace starling::simulate
