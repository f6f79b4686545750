#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/base/dtype.h"
#include "starling/fabric/fabric.h"
#include "starling/flock/errors.h"
#include "starling/flock/pending.h"
#include "starling/kernel/reduce.h"
#include "starling/topology/schedule.h"

namespace starling {

/// A run of elements in memory, whatever their type.
struct ConstBlock {
  DType dtype = DType::float32;
  const void* data = nullptr;
  std::size_t count = 0;
};
struct MutableBlock {
  DType dtype = DType::float32;
  void* data = nullptr;
  std::size_t count = 0;
  operator ConstBlock() const { return {dtype, data, count}; }  // NOLINT: reading is less than writing
};

/// Contiguous elements: a span, a vector, an array, an Eigen vector (anything with data() and size()).
template <typename T>
concept ElementRange = requires(T& range) {
  {*range.data()};
  { range.size() } -> std::convertible_to<std::size_t>;
  requires is_element<std::remove_cvref_t<decltype(*range.data())>>;
};

template <ElementRange T>
MutableBlock block_of(T& range) {
  return {dtype_of<std::remove_cvref_t<decltype(*range.data())>>, range.data(),
          static_cast<std::size_t>(range.size())};
}
template <ElementRange T>
ConstBlock block_of(const T& range) {
  return {dtype_of<std::remove_cvref_t<decltype(*range.data())>>, range.data(),
          static_cast<std::size_t>(range.size())};
}

/// The weights of one neighbour average that does not follow the schedule. Receivers weigh what they hear;
/// `destinations` may scale what each receiver gets. Both sides must be given, on every rank.
struct Weighted {
  double self_weight = 1;
  std::map<Rank, double> sources;
  std::map<Rank, double> destinations;  // usually 1 each
};

/// The group a program joins: rank, size and the operations. A cheap value handle; copies share everything.
/// Every function may be called from several threads; operations under the same name meet in the order they
/// were started.
///
///     auto flock = starling::join();
///     std::vector<float> x(1000, float(flock.rank()));
///     for (int k = 0; k < 100; ++k) flock.neighbor_allreduce(x);
class Flock {
 public:
  explicit Flock(std::shared_ptr<Fabric> fabric);

  Rank rank() const;
  Rank size() const;

  /// Who talks to whom in neighbour operations; the static exponential graph unless set. Every rank must set
  /// the same.
  void set_schedule(SchedulePtr schedule);
  void set_schedule(const std::string& spec);
  SchedulePtr schedule() const;
  /// The step that the next scheduled operation takes, from 0.
  Step step() const;

  /// Bounds every wait; 300 s unless set.
  void set_timeout(std::chrono::nanoseconds timeout);

  /// x <- w_self x + sum of w_j x_j over this step's neighbours, and the step moves on.
  template <ElementRange T>
  void neighbor_allreduce(T& x, const std::string& name = "neighbor_allreduce") {
    start_neighbor_allreduce(block_of(std::as_const(x)), block_of(x), name).wait();
  }
  template <ElementRange T>
  [[nodiscard]] Pending neighbor_allreduce_nonblocking(const T& in, T& out,
                                                       const std::string& name = "neighbor_allreduce") {
    return start_neighbor_allreduce(block_of(in), block_of(out), name);
  }
  /// With weights of one's own instead of the schedule's.
  template <ElementRange T>
  void neighbor_allreduce(T& x, const Weighted& weights, const std::string& name = "neighbor_allreduce") {
    start_neighbor_allreduce(block_of(std::as_const(x)), block_of(x), weights, name).wait();
  }

  /// Everybody gets the sum, minimum or maximum, or the average, of all; bit for bit the same on every rank.
  template <ElementRange T>
  void allreduce(T& x, Reduction reduction = Reduction::sum, const std::string& name = "allreduce") {
    start_allreduce(block_of(std::as_const(x)), block_of(x), reduction, false, name).wait();
  }
  template <ElementRange T>
  void average(T& x, const std::string& name = "average") {
    start_allreduce(block_of(std::as_const(x)), block_of(x), Reduction::sum, true, name).wait();
  }

  /// Everybody gets what `root` holds.
  template <ElementRange T>
  void broadcast(T& x, Rank root, const std::string& name = "broadcast") {
    start_broadcast(block_of(x), root, name).wait();
  }

  /// All ranks' elements one after another; lengths may differ.
  template <ElementRange T>
  auto allgather(const T& x, const std::string& name = "allgather") {
    std::vector<std::remove_cvref_t<decltype(*x.data())>> all;
    gather(block_of(x), everybody(), everybody(), name, [&](std::size_t elements) {
      all.resize(elements);
      return all.data();
    });
    return all;
  }
  /// The elements of this step's sources one after another, in the order of the schedule, without one's own.
  template <ElementRange T>
  auto neighbor_allgather(const T& x, const std::string& name = "neighbor_allgather") {
    std::vector<std::remove_cvref_t<decltype(*x.data())>> all;
    const auto [sources, destinations] = next_neighbors();
    gather(block_of(x), sources, destinations, name, [&](std::size_t elements) {
      all.resize(elements);
      return all.data();
    });
    return all;
  }

  /// x <- self_weight x + (1 - self_weight) x_peer on both.
  template <ElementRange T>
  void pair_gossip(T& x, Rank peer, double self_weight = 0.5, const std::string& name = "pair_gossip") {
    neighbor_allreduce(x, {self_weight, {{peer, 1 - self_weight}}, {{peer, 1.0}}}, name);
  }

  template <ElementRange T>
  void send(const T& x, Rank to, const std::string& name = "send") {
    post(block_of(x), {&to, 1}, name);
  }
  template <ElementRange T>
  void recv(T& x, Rank from, const std::string& name = "send") {
    start_recv(block_of(x), from, name).wait();
  }

  /// Returns when everybody has called it.
  void barrier();

  // The same without templates, for other languages.
  Pending start_neighbor_allreduce(ConstBlock in, MutableBlock out, const std::string& name);
  Pending start_neighbor_allreduce(ConstBlock in, MutableBlock out, const Weighted& weights,
                                   const std::string& name);
  Pending start_allreduce(ConstBlock in, MutableBlock out, Reduction reduction, bool average,
                          const std::string& name);
  Pending start_broadcast(MutableBlock block, Rank root, const std::string& name);
  Pending start_recv(MutableBlock block, Rank from, const std::string& name);
  void post(ConstBlock block, std::span<const Rank> to, const std::string& name);

 private:
  struct State;
  struct Neighbors {
    std::vector<Rank> sources;
    std::vector<Rank> destinations;
  };

  Neighbors next_neighbors();
  std::vector<Rank> everybody() const;
  /// Collects the sources' elements (one's own too where it is among them) into what `room` returns for the
  /// total.
  void gather(ConstBlock in, const std::vector<Rank>& sources, const std::vector<Rank>& destinations,
              const std::string& name, const std::function<void*(std::size_t elements)>& room);

  std::shared_ptr<State> state_;
};

/// Joins the flock that this process was started in (by `starling run`, mpirun or torchrun on one host), or
/// makes a flock of one.
Flock join();

}  // namespace starling
