#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/flock/block.h"
#include "starling/flock/staleness.h"
#include "starling/topology/schedule.h"

namespace starling::flock {

struct WindowOptions {
  bool zero = false;               // slots begin empty instead of with a copy of the owner's tensor
  double copies_p = 1;             // p of such a copy until it is replaced
  bool readable = true;            // others may get(): every update publishes a copy
  bool shared = false;             // others may change the tensor by average_with(): see load()
  SchedulePtr schedule = nullptr;  // its neighbors have slots; default: the flock's schedule
};

/// Memory that other ranks may put to, accumulate to or get from at any time: the target need not be in any
/// call, and a stopped or dead rank delays no other. Every rank has a tensor and one slot per in-neighbor of
/// the schedule that the window was made with. Values are seen completely or not at all, together with a
/// push-sum scalar p (initially 1) that moves with the same weights.
///
///   auto window = flock.create_window(x, "x");
///   window.put();         // x into my slots at my out-neighbors
///   window.update();      // x <- weighted average of x and the current content of my slots
///
/// A cheap handle; copies share everything. One thread at a time.
class Window {
 public:
  struct State;
  explicit Window(std::shared_ptr<State> state) : state_(std::move(state)) {}

  using Weights = std::map<Rank, double>;

  /// Writes the tensor times a weight (default 1) to the destinations' slots; then the tensor and p are
  /// multiplied by self_weight.
  void put(const std::optional<Weights>& destinations = {}, double self_weight = 1);
  /// Like put(), but adds to the slots.
  void accumulate(const std::optional<Weights>& destinations = {}, double self_weight = 1);
  /// The same with `value`, of the tensor's type and length, instead of the tensor, which stays unchanged.
  void put_value(ConstBuffer value, const std::optional<Weights>& destinations = {});
  void accumulate_value(ConstBuffer value, const std::optional<Weights>& destinations = {});
  template <ElementRange T>
  void put_value(const T& value, const std::optional<Weights>& destinations = {}) {
    put_value(const_buffer_of(value), destinations);
  }
  template <ElementRange T>
  void accumulate_value(const T& value, const std::optional<Weights>& destinations = {}) {
    accumulate_value(const_buffer_of(value), destinations);
  }
  /// Fetches the sources' tensors, as of their last update, times a weight (default 1), into this rank's
  /// slots.
  void get(const std::optional<Weights>& sources = {});
  /// Publishes the tensor after the caller has written to it, so that get() fetches the new values.
  void publish();
  /// Empties all slots.
  void clear();

  /// tensor <- self_weight * tensor + the sum of weight * slot, and p likewise; uses the schedule's weights
  /// unless both are given. `reset` empties the slots.
  void update(bool reset = false);
  void update(double self_weight, const Weights& sources, bool reset = false);
  /// Writes the result to `out`; the tensor and p stay unchanged.
  void update_into(Buffer out, double self_weight, const Weights& sources, bool reset = false);
  /// Adds all slots to the tensor and empties them: nothing is lost or counted twice, whatever other ranks do
  /// in the meantime.
  void update_then_collect();

  /// How often a slot was written since the last update.
  std::uint64_t version(Rank source) const;
  double p() const;
  void set_p(double p);

  // Only for shared windows. Any rank may change the values, each change as a whole. Arguments have the
  // tensor's type and length.

  /// Reads, sets or adds to this rank's value, which is stored in the window; the tensor only defines its
  /// shape.
  void load(Buffer out);
  void store(ConstBuffer value);
  void add(ConstBuffer increment);
  template <WritableRange T>
  void load(T&& out) {
    load(buffer_of(out));
  }
  template <ElementRange T>
  void store(const T& value) {
    store(const_buffer_of(value));
  }
  template <ElementRange T>
  void add(const T& increment) {
    add(const_buffer_of(increment));
  }
  /// Moves the other rank's value by weight * (mine - its value), and writes the change to `moved`. With
  /// weight 1/2, a caller that subtracts `moved` from its own value has averaged the two; their sum is
  /// unchanged.
  void average_with(Rank other, ConstBuffer mine, double weight, Buffer moved);
  template <ElementRange In, WritableRange Out>
  void average_with(Rank other, const In& mine, double weight, Out&& moved) {
    average_with(other, const_buffer_of(mine), weight, buffer_of(moved));
  }

  /// Reports to all ranks how many steps this rank has made; later deposits carry this number.
  void set_progress(Step steps);
  /// The progress that this rank last reported.
  Step progress(Rank rank) const;
  bool alive(Rank rank) const;
  /// The age of the values used by updates and reads so far.
  Staleness staleness() const;
  std::vector<Rank> sources() const;
  std::vector<Rank> destinations() const;
  /// The self weight and the sources' weights of an update() without weights.
  std::pair<double, Weights> usual_weights() const;

  /// Holds the mutexes of these ranks' windows until it is destroyed. A mutex held by a dead rank counts as
  /// free. Waits at most the flock's timeout, then throws TimedOut with the holder.
  class Mutex {
   public:
    Mutex(Mutex&&) noexcept = default;
    Mutex& operator=(Mutex&&) = delete;
    ~Mutex();

   private:
    friend class Window;
    explicit Mutex(std::shared_ptr<State> state) : state_(std::move(state)) {}
    void take(std::vector<Rank> ranks, const std::function<void()>& now_and_then);

    std::shared_ptr<State> state_;
    std::vector<Rank> held_;
  };
  /// `now_and_then` is called while waiting, and may throw.
  [[nodiscard]] Mutex mutex(const std::vector<Rank>& ranks, const std::function<void()>& now_and_then = {});
  /// The mutex of this rank's own window.
  [[nodiscard]] Mutex mutex();

  const std::string& name() const;
  /// A collective that frees the window's memory. No copy of the handle may be used afterwards.
  void free();

 private:
  void deposit(ConstBuffer value, const std::optional<Weights>& destinations, bool add);
  void keep_share(double self_weight);

  std::shared_ptr<State> state_;
};

}  // namespace starling::flock

namespace starling {
using flock::Window;
using flock::WindowOptions;
}  // namespace starling
