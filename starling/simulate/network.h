#pragma once

#include <map>
#include <vector>

#include "starling/method/channel.h"
#include "starling/simulate/time_model.h"

namespace starling::simulate {

class SimulatedChannel;

/// How the simulated nodes exchange, and how long that takes.
struct NetworkOptions {
  SchedulePtr schedule;  // null for methods that follow none
  RelayRule relay;
  TimeModel time;
  double drop = 0;  // fraction of the neighbors' messages that are lost
  std::uint64_t seed = 0;
  bool one_sided = false;  // provides windows, for methods that require them
};

/// All nodes of a simulated flock in one process: their channels and collectives. Nodes may run on several
/// threads between two calls of deliver(); what a node sends becomes visible to others at the next call.
class SimulatedNetwork {
 public:
  SimulatedNetwork(Rank nodes, NetworkOptions options);

  Rank size() const { return static_cast<Rank>(nodes_.size()); }
  const NetworkOptions& options() const { return options_; }
  /// The channel of one node's only block; lives at most as long as the network.
  ChannelPtr connect(Rank node);
  SimulatedChannel& operator[](Rank node) const { return *nodes_[static_cast<std::size_t>(node)]; }
  void deliver();

  /// Counts calls of deliver(): messages of earlier passes have arrived.
  std::int64_t pass() const { return pass_; }
  bool lost(Step round, Rank from, Rank to) const { return options_.drop > 0 && drawn_lost(round, from, to); }

  /// A mean within a group of a round, computed once for all its members.
  struct GroupMean {
    std::int64_t there = 0;  // the number of members so far
    bool done = false;
    double time = 0;  // when the last member began; later, when the mean is complete
    std::vector<std::byte> bytes;
  };
  const GroupMean* mean_of(Step round, const Group& group) const;

  /// A collective of all nodes, identified by its number.
  struct Collective {
    Rank there = 0;
    double time = 0;
    std::vector<std::byte> result;
    std::map<Rank, std::vector<std::byte>> parts;  // the parts of an average, until it is computed
    Rank taken = 0;
  };
  enum class Purpose { reduction, gathering, broadcast, average };
  const Collective* collective(Purpose purpose, std::int64_t number) const;
  /// Notes that a node has taken the result; the last one erases it.
  void take(Purpose purpose, std::int64_t number);
  /// Adds a node's part to an average that no node waits for; the last part computes it. Called by one thread
  /// at a time.
  void contribute(std::int64_t number, ConstBuffer block, double time);

  /// The slowest link from a node to its next, which bounds collectives.
  const ModelledLink& slowest() const { return slowest_; }
  double reduction_seconds(std::int64_t members, std::size_t bytes) const;

 private:
  bool drawn_lost(Step round, Rank from, Rank to) const;
  void gather_groups(SimulatedChannel& node);
  void finish_group(Step round, const Group& group, GroupMean& mean);
  void run_collectives();

  NetworkOptions options_;
  std::vector<SimulatedChannel*> nodes_;
  std::int64_t pass_ = 0;
  ModelledLink slowest_;
  std::map<std::pair<Step, Rank>, GroupMean> means_;  // by round and first member
  std::map<std::pair<Purpose, std::int64_t>, Collective> collectives_;
};

}  // namespace starling::simulate
