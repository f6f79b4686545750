#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "starling/base/types.h"

namespace starling::fabric {

class Fabric;

/// One attempt to admit newcomers.
struct AdmissionRound {
  std::uint64_t number = 0;                // unique in the job; 0: there are no newcomers
  std::vector<std::uint64_t> newcomers{};  // their tickets, in the order of their future ranks
};

/// Admits processes that want to join a running job. The members and the newcomers form a new fabric: first
/// the members in their order, then the newcomers. The members use the old fabric until the round is
/// concluded, and keep it if the round fails. Owned by the old fabric.
class Admission {
 public:
  virtual ~Admission() = default;

  /// Called by one member: invites all waiting newcomers and returns those that answered. A newcomer that
  /// does not answer promptly is considered dead and is not asked again.
  virtual AdmissionRound invite() = 0;
  /// Called by every member, with its index among the members: forms the new fabric. Throws if that fails or
  /// takes longer than admission_time_limit().
  virtual std::shared_ptr<Fabric> form_fabric(const AdmissionRound& round, Rank index, Rank members) = 0;
  /// Called by one member afterwards: waits until all newcomers have the new fabric, too; false if they do
  /// not in time.
  virtual bool all_joined(const AdmissionRound& round) = 0;
  /// Called by every member: whether the new fabric replaces the old one. If not, the newcomers keep waiting.
  virtual void conclude(const AdmissionRound& round, bool accepted) = 0;

  /// The number of the round that formed this fabric; 0 for the first fabric of a job.
  virtual std::uint64_t round_number() const = 0;
  /// How many of this fabric's ranks, counted from the last, joined in that round.
  virtual Rank newcomers() const = 0;
};

/// Wraps a newly formed fabric into the one that the job uses, e.g. a hybrid one.
using WrapFabric = std::function<std::shared_ptr<Fabric>(std::shared_ptr<Fabric> fabric)>;

/// The time limit for forming the new fabric, given the time limit for joining: members are idle meanwhile.
constexpr std::chrono::milliseconds admission_time_limit(std::chrono::milliseconds join_timeout) {
  return std::min(join_timeout / 2, std::chrono::milliseconds(20'000));
}

}  // namespace starling::fabric
