#include "starling/flock/membership.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/record/log.h"

namespace starling {
namespace {

constexpr std::uint64_t kDeath = 0x6465617468;
constexpr std::uint64_t kFirstStep = 0x6669727374;
constexpr std::uint64_t kLineRegister = 0x6C696E65;

// Everybody finds the same line for the same flock: the first that nobody else has taken.
std::uint32_t find_line(Board& board, std::uint64_t flock) {
  if (flock == 0) return 0;
  const auto wanted = static_cast<std::int64_t>(flock >> 1);
  for (std::uint32_t line = 1; line < Board::kLines; ++line)
    if (board.agree(register_key(kLineRegister, line), wanted) == wanted) return line;
  throw Error(fmt::format("more than {} flocks of one job cannot each reweight after deaths", Board::kLines));
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

void Membership::learn() {
  while (const auto dead = fabric_.board().agreed(register_key(kDeath, views_.size()))) {
    View next = *views_.back();
    ++next.epoch;
    next.first_step = -1;
    std::erase(next.members, static_cast<Rank>(*dead));
    log(LogLevel::debug, fmt::format("rank {} knows of view {}: rank {} is gone, {} ranks are left",
                                     fabric_.rank(), next.epoch, *dead, next.members.size()));
    views_.push_back(std::make_shared<View>(std::move(next)));
  }
}

void Membership::fix_first_steps() {
  for (std::size_t e = 1; e < views_.size(); ++e) {
    if (views_[e]->first_step >= 0) continue;
    Step first = views_[e - 1]->first_step;
    for (const Rank member : views_[e]->members)
      first = std::max(first, fabric_.board().announced(member, line_) + 1);
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
  if (line_ == Board::kLines) line_ = find_line(fabric_.board(), flock_);
  fabric_.board().announce(step, line_);
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
    fabric_.board().agree(register_key(kDeath, views_.size()), rank);
}

}  // namespace starling
