#include "starling/fabric/cuda/flag_pages.h"

#include <fmt/format.h>
#include <map>
#include <new>

#include "starling/fabric/local/region.h"
#include "starling/kernel/device.h"

namespace starling::fabric::cuda {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr std::size_t kPageBytes = std::size_t{64} << 10;
constexpr std::uint32_t kLines = kPageBytes / sizeof(FlagLine);
constexpr std::uint32_t kLastNumber = kernel::kLost - 8;  // a line is used a few more times after this check

/// The flag pages that this process has registered. Ranks that are threads of it share them, and a device
/// rejects a page that is registered already.
class Registrations {
 public:
  static Registrations& all() {
    static Registrations instance;
    return instance;
  }

  void add(std::byte* page) {
    const std::lock_guard lock(mutex_);
    if (users_[page] == 0) kernel::device().register_flags(page, kPageBytes);
    ++users_[page];
  }
  void remove(std::byte* page) {
    const std::lock_guard lock(mutex_);
    if (--users_[page] > 0) return;
    users_.erase(page);
    kernel::device().unregister_flags(page);
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, int> users_;
};

}  // namespace

// Regions begin at page boundaries, so that all ranks find the same line.
std::byte* FlagPages::aligned(std::byte* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return memory + ((address + kAlignment - 1) / kAlignment * kAlignment - address);
}

FlagPages::~FlagPages() {
  try {
    for (const auto& [owner, page] : registered_)
      Registrations::all().remove(aligned(fabric_.exposed(owner, page)));
  } catch (...) {
    // The device is lost, and its registrations with it.
  }
}

OwnLine FlagPages::take() {
  for (std::vector<OwnLine> fresh;; fresh = new_page()) {
    const std::lock_guard lock(mutex_);
    free_.insert(free_.end(), fresh.begin(), fresh.end());
    if (free_.empty()) continue;
    const OwnLine line = free_.back();
    free_.pop_back();
    return line;
  }
}

void FlagPages::give_back(const OwnLine& line) {
  if (line.name.number >= kLastNumber) return;
  const std::lock_guard lock(mutex_);
  line.line->flag.store(line.name.number, std::memory_order_relaxed);  // without kLost
  line.line->released.store(0, std::memory_order_relaxed);
  free_.push_back(line);
}

std::vector<OwnLine> FlagPages::new_page() {
  const std::uint64_t page = fabric_.expose(kPageBytes + kAlignment);
  const Rank self = fabric_.rank();
  std::byte* memory = aligned(fabric_.exposed(self, page));
  register_page(self, page);
  std::vector<OwnLine> lines;
  for (std::uint32_t i = 0; i < kLines; ++i)
    lines.push_back({new (memory + i * sizeof(FlagLine)) FlagLine, {page, i, 0}});
  return lines;
}

void FlagPages::register_page(Rank owner, std::uint64_t page) {
  const std::lock_guard lock(registering_);
  if (registered_.contains({owner, page})) return;
  Registrations::all().add(aligned(fabric_.exposed(owner, page)));
  registered_.emplace(owner, page);
}

FlagLine& FlagPages::find(Rank owner, const FlagName& name) {
  if (name.line >= kLines || !local::Region::contains(name.page, kPageBytes + kAlignment))
    local::refuse_memory_of(owner, fmt::format("it names line {} of a page of flags at offset {}, which "
                                               "cannot be",
                                               name.line, name.page));
  return *reinterpret_cast<FlagLine*>(aligned(fabric_.exposed(owner, name.page)) +
                                      name.line * sizeof(FlagLine));
}

void FlagPages::make_usable(Rank owner, const FlagName& name) {
  register_page(owner, name.page);
}

}  // namespace starling::fabric::cuda
