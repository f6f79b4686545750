#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "starling/fabric/cuda/ticket.h"
#include "starling/fabric/fabric.h"

namespace starling::fabric::cuda {

/// A line of this rank's. Numbers of a line only grow, also from one use to the next: a stream may still wait
/// for an earlier one.
struct OwnLine {
  FlagLine* line = nullptr;
  FlagName name;  // with the last number in use

  /// Whether what was enqueued to write the number has been done, or its writer is lost.
  bool reached() const { return line->flag.load(std::memory_order_acquire) >= name.number; }
};

/// The pages of flags in exposed memory: this rank's own, and those of its peers. Devices can use them. Owned
/// by the cuda fabric. Thread-safe.
class FlagPages {
 public:
  explicit FlagPages(Fabric& fabric) : fabric_(fabric) {}
  ~FlagPages();
  FlagPages(const FlagPages&) = delete;
  FlagPages& operator=(const FlagPages&) = delete;

  OwnLine take();
  /// Of a line that no device writes to any more.
  void give_back(const OwnLine& line);

  /// Throws Error where there can be no such line.
  FlagLine& find(Rank owner, const FlagName& name);
  /// Makes the line usable for the devices of this process.
  void make_usable(Rank owner, const FlagName& name);

 private:
  static std::byte* aligned(std::byte* memory);
  std::vector<OwnLine> new_page();
  void register_page(Rank owner, std::uint64_t page);

  Fabric& fabric_;
  std::mutex mutex_;  // of free_; never held while the device is called
  std::vector<OwnLine> free_;
  std::mutex registering_;
  std::set<std::pair<Rank, std::uint64_t>> registered_;
};

}  // namespace starling::fabric::cuda
