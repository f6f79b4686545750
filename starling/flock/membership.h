#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "starling/fabric/fabric.h"
#include "starling/flock/flock_types.h"

namespace starling::flock {

/// Agreement on which ranks are alive, through the fabric's register alone: the d-th death of the job is what
/// all ranks agree on under key (death, d). If the dead rank is a member, the next view e lacks it and
/// applies from 1 + the highest step that any of its members has started, agreed on under key (first step,
/// e). A rank announces a step before it checks for deaths; a rank that fixes a first step reads the
/// announcements after the death is known. One of the two sees the other, so all ranks do a step in the same
/// view. Thread-safe.
class Membership {
 public:
  /// The membership of these ranks; `flock` separates their announcements from those of other flocks.
  Membership(Fabric& fabric, std::vector<Rank> members, std::uint64_t flock = 0);
  /// Of all ranks.
  explicit Membership(Fabric& fabric);

  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();
  /// Limits how long a rank that does not answer for its step delays the others.
  void set_timeout(const std::atomic<std::chrono::nanoseconds>& timeout) { timeout_ = &timeout; }

  /// The newest view that any rank has proposed.
  std::shared_ptr<const View> newest();
  /// Starts `step` on this rank, and returns the view in which all ranks do it.
  std::shared_ptr<const View> start(Step step);
  /// The first view, of all ranks; if deaths are errors, it is the only one.
  std::shared_ptr<const View> first() const { return first_; }
  std::shared_ptr<const View> at_epoch(std::uint32_t epoch);
  /// The view that applies to `step`, as far as known.
  std::shared_ptr<const View> at(Step step);
  /// Reports that this rank has seen `rank` die: a view without it will follow.
  void lost(Rank rank);

 private:
  std::size_t latest(Step step) const;
  void learn();  // learns the deaths that others agreed on; throws Excluded if this rank is one of them
  Step started_by(Rank member) const;
  void fix_first_steps();

  Fabric& fabric_;
  std::uint64_t flock_;
  std::shared_ptr<const View> first_;
  const std::atomic<std::chrono::nanoseconds>* timeout_ = nullptr;
  std::mutex mutex_;
  std::uint64_t deaths_ = 0;                        // known deaths, of members and of others
  std::vector<std::shared_ptr<const View>> views_;  // by epoch
};

/// A key of the register.
constexpr std::uint64_t register_key(std::uint64_t kind, std::uint64_t a, std::uint64_t b = 0,
                                     std::uint64_t c = 0) {
  std::uint64_t key = kind;
  for (const std::uint64_t part : {a, b, c}) {
    key = (key ^ part) * 0x9E3779B97F4A7C15u;
    key ^= key >> 29;
  }
  return key;
}

}  // namespace starling::flock
