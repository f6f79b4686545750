#include "starling/flock/shared_memory_window.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/flock/weighted_sum.h"
#include "starling/kernel/arithmetic.h"

namespace starling::flock {
namespace {

constexpr std::size_t kControlBytes = 64;
constexpr std::size_t kSlotParties = 2;  // the owner and the source, which both write

std::size_t tensor_control_bytes(const WindowShape& shape) {
  return Cell::control_bytes(shape.members.size(), shape.shared ? shape.members.size() : 1);
}

// The ranks whose memory holds a cell's buffers: over a network always the owner, which acts for the others.
std::vector<Rank> keepers(Fabric& fabric, std::vector<Rank> parties) {
  if (fabric.remote_calls() != nullptr) std::fill(parties.begin(), parties.end(), parties[0]);
  return parties;
}

}  // namespace

std::size_t WindowShape::part_bytes(std::size_t sources) const {
  return kControlBytes + tensor_control_bytes(*this) +
         sources * Cell::control_bytes(kSlotParties, kSlotParties);
}

// The owner writes, or all ranks do if the window is shared; all ranks read.
Cell WindowPart::tensor(const std::shared_ptr<Fabric>& fabric, const WindowShape& shape, Rank who) const {
  std::vector<Rank> parties = {owner};
  for (const Rank member : shape.members)
    if (member != owner) parties.push_back(member);
  const auto me = static_cast<std::size_t>(std::find(parties.begin(), parties.end(), who) - parties.begin());
  return {fabric,
          memory + kControlBytes,
          keepers(*fabric, parties),
          shape.shared ? parties.size() : 1,
          me,
          shape.value.bytes(),
          shape.pool};
}

Cell WindowPart::slot(const std::shared_ptr<Fabric>& fabric, const WindowShape& shape, std::size_t k,
                      Rank who) const {
  std::byte* cell = memory + shape.part_bytes(k);
  return {fabric,
          cell,
          keepers(*fabric, {owner, sources[k]}),
          kSlotParties,
          who == owner ? 0U : 1U,
          shape.value.bytes(),
          shape.pool};
}

SharedMemoryWindow::SharedMemoryWindow(std::shared_ptr<Fabric> fabric, const WindowShape& shape,
                                       const WindowPart& part, Rank who)
    : fabric_(std::move(fabric)),
      value_(shape.value),
      owner_(part.owner),
      who_(who),
      control_(part.control()),
      tensor_(part.tensor(fabric_, shape, who)) {
  const auto source = std::find(part.sources.begin(), part.sources.end(), who);
  if (source != part.sources.end())
    slot_ = part.slot(fabric_, shape, static_cast<std::size_t>(source - part.sources.begin()), who);
}

void SharedMemoryWindow::deposit(const Deposit& given) {
  const auto fill = [&](const Content& fresh, const Cell::Held& old) {
    std::vector<Term> terms = {{given.value, given.weight}};
    *fresh.p = given.p;
    *fresh.stamp = given.stamp;
    if (old) {
      terms.emplace_back(value_.at<const void>(old.data()), 1);
      *fresh.p += old.p();
    }
    const Buffer out = value_.at<void>(fresh.data);
    if (terms.size() == 1 && given.weight == 1) {
      kernel::arithmetic_in(out.memory).copy(out, given.value);
    } else {
      weighted_sum(out, terms);
    }
  };
  if (given.add) {
    slot_->change(fill);
  } else {
    slot_->replace([&](const Content& fresh) { fill(fresh, {}); });
  }
}

WindowTransport::Reading SharedMemoryWindow::read(const Reader& reader) {
  const Cell::Held theirs = tensor_.look();
  if (!theirs) return fabric_->alive(owner_) ? Reading::not_readable : Reading::lost;
  reader(value_.at<const void>(theirs.data()), theirs.p(), theirs.stamp());
  return Reading::done;
}

std::optional<Step> SharedMemoryWindow::average_with(ConstBuffer mine, double weight, Buffer moved) {
  Step stamp = 0;
  tensor_.change([&](const Content& fresh, const Cell::Held& old) {
    if (!old) throw Error(fmt::format("the window of rank {} is damaged: its tensor is gone", owner_));
    const ConstBuffer theirs = value_.at<const void>(old.data());
    const Term distance[] = {{mine, weight}, {theirs, -weight}};
    weighted_sum(moved, distance);
    const Term terms[] = {{theirs, 1}, {moved, 1}};
    weighted_sum(value_.at<void>(fresh.data), terms);
    *fresh.p = old.p();
    *fresh.stamp = stamp = old.stamp();
  });
  return stamp;
}

// Other ranks read it from the control block.
void SharedMemoryWindow::tell_progress(Step steps) {
  if (who_ == owner_) control_.progress.store(steps, std::memory_order_release);
}

std::optional<Rank> SharedMemoryWindow::lock(bool look) {
  const auto mine = static_cast<std::uint32_t>(who_) + 1;
  std::uint32_t there = 0;
  if (control_.holder.compare_exchange_strong(there, mine, std::memory_order_acquire)) return std::nullopt;
  const auto by = static_cast<Rank>(there) - 1;
  if (by < 0 || by >= fabric_->size())
    throw Error(fmt::format("the window of rank {} is damaged: rank {} holds its mutex", owner_, by));
  if (look && by != who_ && !fabric_->alive(by) &&
      control_.holder.compare_exchange_strong(there, mine, std::memory_order_acquire))
    return std::nullopt;  // the holder is dead and will not release it
  return by;
}

void SharedMemoryWindow::unlock() {
  auto mine = static_cast<std::uint32_t>(who_) + 1;
  control_.holder.compare_exchange_strong(mine, 0, std::memory_order_release, std::memory_order_relaxed);
}

void SharedMemoryWindow::withdraw() {
  tensor_.withdraw();
  if (slot_) slot_->withdraw();
}

}  // namespace starling::flock
