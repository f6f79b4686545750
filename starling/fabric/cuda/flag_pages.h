#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "starling/fabric/cuda/ticket.h"
#include "starling/fabric/fabric.h"

namespace starling::fabric::cuda {

/// A flag line of this rank. Its numbers only increase, also from one use to the next, because a stream may
/// still wait for an earlier one.
struct OwnLine {
  FlagLine* line = nullptr;
  FlagName name;  // its number is the last one in use

  /// Whether the work that writes the number has ended, or its writer has died.
  bool reached() const { return line->flag.load(std::memory_order_acquire) >= name.number; }
};

/// Pages of flags in exposed memory, of this rank and its peers, that devices can access. Owned by the cuda
/// fabric. Thread-safe.
class FlagPages {
 public:
  explicit FlagPages(Fabric& fabric) : fabric_(fabric) {}
  ~FlagPages();
  FlagPages(const FlagPages&) = delete;
  FlagPages& operator=(const FlagPages&) = delete;

  OwnLine take();
  /// Returns a line that no device writes to any more.
  void give_back(const OwnLine& line);

  /// Throws Error if no such line can exist.
  FlagLine& find(Rank owner, const FlagName& name);
  /// Registers the line with the devices of this process.
  void make_usable(Rank owner, const FlagName& name);

 private:
  static std::byte* aligned(std::byte* memory);
  std::vector<OwnLine> new_page();
  void register_page(Rank owner, std::uint64_t page);

  Fabric& fabric_;
  std::mutex mutex_;  // guards free_; never held during calls of the device
  std::vector<OwnLine> free_;
  std::mutex registering_;
  std::set<std::pair<Rank, std::uint64_t>> registered_;
};

}  // namespace starling::fabric::cuda
