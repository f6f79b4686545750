#include "starling/flock/membership.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/flock/errors.h"
#include "starling/record/log.h"

namespace starling::flock {
namespace {

constexpr std::uint64_t kDeath = 0x6465617468;
constexpr std::uint64_t kFirstStep = 0x6669727374;
constexpr std::chrono::seconds kWarnAboutMember{5};

// A dead rank, and the rank that reported it.
struct Death {
  Rank rank;
  Rank by;
};
std::int64_t word_of(const Death& death) {
  return static_cast<std::int64_t>(death.by) << 32 | static_cast<std::int64_t>(death.rank);
}
Death death_of(std::int64_t word) {
  return {static_cast<Rank>(word & 0xFFFFFFFF), static_cast<Rank>(word >> 32)};
}

std::string rank_list(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank r : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  return text;
}

std::vector<Rank> all_ranks(Rank size) {
  std::vector<Rank> all;
  for (Rank r = 0; r < size; ++r) all.push_back(r);
  return all;
}

}  // namespace

bool View::has(Rank rank) const {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

Membership::Membership(Fabric& fabric, std::vector<Rank> members, std::uint64_t flock)
    : fabric_(fabric),
      flock_(flock),
      first_(std::make_shared<View>(View{0, std::move(members), 0})),
      views_({first_}) {}

Membership::Membership(Fabric& fabric) : Membership(fabric, all_ranks(fabric.size())) {}

Membership::~Membership() {
  if (flock_ != 0) fabric_.board().retire(flock_);
}

void Membership::learn() {
  while (const auto word = fabric_.board().agreed(register_key(kDeath, deaths_ + 1))) {
    const Death death = death_of(*word);
    if (!views_.back()->has(death.rank)) {
      ++deaths_;
      continue;
    }
    View next = *views_.back();
    ++next.epoch;
    next.first_step = -1;
    std::erase(next.members, death.rank);
    // The job was split in two, and the other part decided first.
    const bool other_side = fabric_.alive(death.rank) && !fabric_.alive(death.by);
    if (death.rank == fabric_.rank() || other_side)
      throw Excluded(fmt::format(
          "rank {} is no longer a member: rank {} decided on view {} without rank {}, with the members "
          "{}",
          fabric_.rank(), death.by, next.epoch, death.rank, rank_list(next.members)));
    log(LogLevel::debug, fmt::format("rank {} learned of view {}: rank {} failed, {} ranks are left",
                                     fabric_.rank(), next.epoch, death.rank, next.members.size()));
    fabric_.exclude(death.rank);
    ++deaths_;
    views_.push_back(std::make_shared<View>(std::move(next)));
  }
}

// A stopped rank does not answer, so the others cannot know whether it is ahead of them.
Step Membership::started_by(Rank member) const {
  const auto since = std::chrono::steady_clock::now();
  for (bool warned = false;;) {
    if (const auto step = fabric_.board().announced(member, flock_)) return *step;
    const auto waited = std::chrono::steady_clock::now() - since;
    const double seconds = std::chrono::duration<double>(waited).count();
    const std::string text =
        fmt::format("after a failure for rank {} to announce the step it has started", member);
    if (const std::string why = fabric_.exclusion_reason(); !why.empty()) throw Excluded(why);
    if (timeout_ != nullptr && waited > timeout_->load())
      throw TimedOut(
          fmt::format("rank {} waited {:.1f} s {}, longer than the timeout", fabric_.rank(), seconds, text));
    if (waited > kWarnAboutMember && !std::exchange(warned, true))
      log(LogLevel::normal, fmt::format("rank {} has waited {:.0f} s {}", fabric_.rank(), seconds, text));
  }
}

void Membership::fix_first_steps() {
  for (std::size_t e = 1; e < views_.size(); ++e) {
    if (views_[e]->first_step >= 0) continue;
    Step first = views_[e - 1]->first_step;
    for (const Rank member : views_[e]->members) first = std::max(first, started_by(member) + 1);
    View fixed = *views_[e];
    fixed.first_step = fabric_.board().agree(register_key(kFirstStep, e, flock_), first);
    views_[e] = std::make_shared<View>(std::move(fixed));
  }
}

std::shared_ptr<const View> Membership::newest() {
  const std::lock_guard lock(mutex_);
  learn();
  return views_.back();
}

std::size_t Membership::latest(Step step) const {
  std::size_t e = views_.size() - 1;
  while (e > 0 && (views_[e]->first_step < 0 || views_[e]->first_step > step)) --e;
  return e;
}

std::shared_ptr<const View> Membership::start(Step step) {
  const std::lock_guard lock(mutex_);
  fabric_.board().announce(flock_, step);
  learn();
  fix_first_steps();
  return views_[latest(step)];
}

std::shared_ptr<const View> Membership::at_epoch(std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  return views_.at(epoch);
}

std::shared_ptr<const View> Membership::at(Step step) {
  const std::lock_guard lock(mutex_);
  learn();
  return views_[latest(step)];
}

void Membership::lost(Rank rank) {
  const std::lock_guard lock(mutex_);
  for (learn(); views_.back()->has(rank); learn())
    fabric_.board().agree(register_key(kDeath, deaths_ + 1), word_of({rank, fabric_.rank()}));
}

}  // namespace starling::flock
