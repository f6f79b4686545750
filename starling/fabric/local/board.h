#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "starling/fabric/board.h"
#include "starling/fabric/local/layout.h"
#include "starling/fabric/local/region.h"

namespace starling::local {

/// Every rank's region by rank; threads of one process share the mappings, so that a thread sanitizer sees
/// what they do.
using Regions = std::vector<std::shared_ptr<Region>>;

/// The board in shared memory: each rank's notes in its own region, the register in rank 0's, which outlives
/// its process as long as anybody has it mapped.
class LocalBoard final : public Board {
 public:
  LocalBoard(Rank rank, const Regions& regions) : rank_(rank), regions_(regions) {}

  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override;
  std::optional<std::int64_t> agreed(std::uint64_t key) const override;
  void announce(std::uint64_t flock, Step step) override;
  std::optional<Step> announced(Rank rank, std::uint64_t flock) const override;
  void retire(std::uint64_t flock) override;
  void publish(const Waiting& waiting) override;
  Waiting waiting(Rank rank) const override;
  Posted posted(Rank rank) const override;

 private:
  Control& control(Rank rank) const { return *regions_[static_cast<std::size_t>(rank)]->as<Control>(0); }
  Register* registers() const;
  /// Where `key` is, or the free place where it would go; throws Error when the table is full.
  Register& find(std::uint64_t key) const;

  /// The place of this rank's announcements for a flock; null where all are taken. With the mutex.
  Announcement* place_of(std::uint64_t flock);

  Rank rank_;
  const Regions& regions_;
  std::mutex announce_mutex_;
  std::unordered_map<std::uint64_t, std::size_t> places_;  // by flock, in `announced`
  std::deque<std::uint64_t> retired_;                      // whose places are free, the oldest first
  std::mutex publish_mutex_;
};

}  // namespace starling::local
