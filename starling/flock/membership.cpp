#include "starling/flock/membership.h"

#include <algorithm>

namespace starling {
namespace {

constexpr std::uint64_t kDeath = 0x6465617468;
constexpr std::uint64_t kFirstStep = 0x6669727374;

}  // namespace

bool View::has(Rank rank) const {
  return std::binary_search(members.begin(), members.end(), rank);
}

Membership::Membership(Fabric& fabric) : fabric_(fabric) {
  View all;
  for (Rank r = 0; r < fabric.size(); ++r) all.members.push_back(r);
  views_.push_back(std::make_shared<View>(std::move(all)));
}

void Membership::learn() {
  while (const auto dead = fabric_.board().agreed(register_key(kDeath, views_.size()))) {
    View next = *views_.back();
    ++next.epoch;
    next.first_step = -1;
    std::erase(next.members, static_cast<Rank>(*dead));
    views_.push_back(std::make_shared<View>(std::move(next)));
  }
}

void Membership::fix_first_steps() {
  for (std::size_t e = 1; e < views_.size(); ++e) {
    if (views_[e]->first_step >= 0) continue;
    Step first = views_[e - 1]->first_step;
    for (const Rank member : views_[e]->members)
      first = std::max(first, fabric_.board().announced(member) + 1);
    View fixed = *views_[e];
    fixed.first_step = fabric_.board().agree(register_key(kFirstStep, e), first);
    views_[e] = std::make_shared<View>(std::move(fixed));
  }
}

std::shared_ptr<const View> Membership::newest() {
  const std::lock_guard lock(mutex_);
  learn();
  return views_.back();
}

std::shared_ptr<const View> Membership::start(Step step) {
  const std::lock_guard lock(mutex_);
  fabric_.board().announce(step);
  learn();
  fix_first_steps();
  std::size_t e = views_.size() - 1;
  while (views_[e]->first_step > step) --e;
  return views_[e];
}

void Membership::lost(Rank rank) {
  const std::lock_guard lock(mutex_);
  for (learn(); views_.back()->has(rank); learn())
    fabric_.board().agree(register_key(kDeath, views_.size()), rank);
}

}  // namespace starling
