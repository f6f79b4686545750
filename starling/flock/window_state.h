#pragma once

#include "starling/flock/flock_state.h"
#include "starling/flock/remote_window.h"
#include "starling/flock/shared_memory_window.h"
#include "starling/flock/window.h"

namespace starling::flock {

/// This rank's part of a window, and the transports to the parts of all ranks.
struct Window::State {
  /// Exposes this rank's part; call connect() when all ranks have done so.
  State(FlockState& flock, std::string name, Buffer tensor, Exchange neighbors, const WindowOptions& options);

  /// What this rank publishes about its part: its rank, the part's name, its pool's number and its sources.
  std::vector<std::int64_t> card() const;
  /// Connects to the parts of all ranks; `cards` are their cards.
  void connect(const std::vector<std::int64_t>& cards);
  /// Where values lie on a device: lets the ranks that read this rank's memory do so; all ranks call it
  /// before any of them calls begin().
  void lend_memory();
  /// The first values of this rank's slots and tensor.
  void begin();
  /// Throws Error where the bytes at this index are not a valid card.
  void check_card(const std::vector<std::int64_t>& cards, std::size_t at) const;
  void publish_own();  // if the window is readable
  /// Throws InvalidArgument if a value passed to `call` does not match the tensor.
  void check_value(const ConstBuffer& value, const char* call) const;
  /// Throws InvalidArgument unless the window is shared.
  void check_shared() const;
  Cell& own_value();
  /// Frees all memory. Otherwise the memory stays until the flock ends, because other ranks may access it.
  void free();
  /// Throws InvalidArgument for ranks that are not in `valid`, which the error calls `what`.
  void check_neighbors(const Weights& weights, const std::vector<Rank>& valid, const char* what) const;
  WindowTransport& transport(Rank global_rank) const { return *transports.at(global_rank); }
  DeviceGuard guard() const { return DeviceGuard(*flock->runtime); }
  /// A trace of one call, for the records.
  Trace trace(RecordKind kind) const {
    return {flock->runtime->recorder, {topic.text, topic.recorded}, kind, topic.record_step(), tensor.memory};
  }

  FlockState* flock;  // which keeps this state; handles keep both
  std::string name;
  Topic& topic;  // only its name, for the records
  Buffer tensor;
  Exchange neighbors;  // ranks of the whole flock
  WindowOptions options;
  double p = 1;
  Step progress = 0;
  Staleness staleness;

  std::unique_ptr<fabric::DevicePool> pool;  // of values on a device
  WindowShape shape;
  std::vector<Rank> sources;               // in ascending order: the ranks with a slot here
  std::vector<Rank> destinations;          // in ascending order: the ranks at which this rank has a slot
  std::uint64_t memory = 0;                // this rank's part
  std::unique_ptr<WindowService> service;  // if other ranks cannot access the memory
  std::map<Rank, Cell> slots;              // by source: here
  std::map<Rank, std::unique_ptr<WindowTransport>> transports;  // to every rank's part, this rank's included
  SharedMemoryWindow* own = nullptr;                            // of these
  std::map<Rank, std::uint64_t> seen;                           // deposits at the last update

  // Where values lie on a device.
  std::map<Rank, std::uint32_t> pools;  // the other ranks', by number
  std::vector<Rank> readers;            // the ranks that read this rank's memory, which reads theirs
};

}  // namespace starling::flock
