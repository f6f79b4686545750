#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "starling/fabric/board.h"
#include "starling/fabric/local/layout.h"
#include "starling/fabric/local/region.h"

namespace starling::fabric::local {

/// Every rank's region, by rank. Ranks that are threads of one process share the mappings, so that
/// ThreadSanitizer sees their accesses.
using Regions = std::vector<std::shared_ptr<Region>>;

/// The status board in shared memory: each rank's status is in its own region, the table of agreements in
/// rank 0's, which outlives rank 0's process as long as another rank has it mapped. Owned by the local
/// fabric.
class LocalBoard final : public Board {
 public:
  LocalBoard(Rank rank, const Regions& regions) : rank_(rank), regions_(regions) {}

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override;
  std::optional<std::int64_t> agreed(std::uint64_t key) const override;
  void announce(std::uint64_t flock, Step step) override;
  std::optional<Step> announced(Rank rank, std::uint64_t flock) const override;
  void retire(std::uint64_t flock) override;
  void publish(const WaitStatus& waiting) override;
  WaitStatus waiting(Rank rank) const override;
  LastPost posted(Rank rank) const override;

 private:
  Control& control(Rank rank) const { return *regions_[static_cast<std::size_t>(rank)]->as<Control>(0); }
  AgreementSlot* agreement_slots() const;
  /// The slot of `key`, or the free slot where it belongs. Throws Error if the table is full.
  AgreementSlot& find(std::uint64_t key) const;

  /// The slot of this rank's announcements for a flock; null if all slots are in use. Requires
  /// announce_mutex_.
  Announcement* announcement_slot(std::uint64_t flock);

  Rank rank_;
  const Regions& regions_;
  std::mutex announce_mutex_;
  std::unordered_map<std::uint64_t, std::size_t> slots_;  // by flock: index into `announced`
  std::deque<std::uint64_t> retired_;                     // flocks whose slots may be reused, oldest first
  std::mutex publish_mutex_;
};

}  // namespace starling::fabric::local
