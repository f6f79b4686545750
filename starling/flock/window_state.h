#pragma once

#include <atomic>

#include "starling/flock/cell.h"
#include "starling/flock/core.h"
#include "starling/flock/window.h"

namespace starling {

/// What lies at the beginning of a rank's exposed window memory; its cells follow.
struct WindowControl {
  std::atomic<std::uint32_t> holder;   // of the mutex: rank + 1
  std::atomic<std::int64_t> progress;  // steps its owner has made
};

/// This rank's part of a window, and its ways into the others'.
struct Window::State {
  /// Exposes this rank's part; `connect` follows when everybody has.
  State(Core& core, std::string name, MutableBlock tensor, Exchange neighbors, const WindowOptions& options);

  /// memory[r]: what the r-th member of the flock calls its part.
  void connect(const std::vector<std::int64_t>& memory);
  void publish_own();  // where the window is readable
  Cell& shared_cell(Rank rank);
  std::size_t tensor_writers() const { return options.shared ? core->members.size() : 1; }
  /// Gives all memory back. Without it the memory stays until the flock ends: others may look at it.
  void free();
  void check_neighbors(const Weights& weights, const std::map<Rank, Cell>& cells, const char* what) const;
  WindowControl& control(Rank global_rank) const;
  /// One call in the records.
  Trace trace(RecordKind kind) const { return {core->hub->recorder, {topic.text, topic.recorded}, kind, 0}; }

  Core* core;  // which keeps this; handles keep both
  std::string name;
  Topic& topic;  // only its name, for the records
  MutableBlock tensor;
  Exchange neighbors;  // ranks of the whole flock
  WindowOptions options;
  double p = 1;
  Step progress = 0;
  Staleness staleness;

  std::size_t bytes_exposed = 0;
  std::uint64_t memory = 0;             // this rank's part
  std::map<Rank, std::uint64_t> parts;  // everybody's
  std::map<Rank, Cell> slots;           // by source: here
  std::map<Rank, Cell> outlets;         // by destination: there
  std::map<Rank, Cell> tensors;         // of everybody, for get
  std::map<Rank, std::uint64_t> seen;   // deposits at the last update
};

}  // namespace starling
