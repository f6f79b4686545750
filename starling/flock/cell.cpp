#include "starling/flock/cell.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/device.h"

namespace starling::flock {
namespace {

constexpr std::size_t kCacheLine = 64;

std::size_t lines(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// The published word: a version that never repeats, and the buffer's number + 1 (0: no value).
constexpr std::uint64_t kBuffers = 1 << 16;

std::uint64_t next_version(std::uint64_t published, std::size_t buffer_plus_one) {
  return (published / kBuffers + 1) * kBuffers + buffer_plus_one;
}

}  // namespace

struct Cell::Control {
  std::atomic<std::uint64_t> published;
  std::atomic<std::uint64_t> deposits;
};

/// A line before a buffer's bytes.
struct Cell::Header {
  double p;
  std::int64_t stamp;
  std::uint64_t block;  // of the writer's pool, where the bytes lie on a device
};

Cell::Held::~Held() {
  if (hold_ == nullptr) return;
  try {
    if (on_device_) kernel::device().synchronize();
  } catch (...) {
    // The device has failed: it reads no more.
  }
  hold_->store(0, std::memory_order_seq_cst);
}

// Control, a line for each party's hold, then the offsets of the writers' buffers.
std::size_t Cell::control_bytes(std::size_t parties, std::size_t writers) {
  return kCacheLine + parties * kCacheLine + lines(writers * (parties + 1) * sizeof(std::uint64_t));
}

Cell::Cell(std::shared_ptr<Fabric> fabric, std::byte* control, std::vector<Rank> ranks, std::size_t writers,
           std::size_t me, std::size_t bytes, fabric::DevicePool* pool)
    : fabric_(std::move(fabric)),
      memory_(control),
      ranks_(std::move(ranks)),
      writers_(writers),
      me_(me),
      bytes_(bytes),
      pool_(pool) {}

void Cell::withdraw() {
  if (me_ >= writers_) return;
  for (std::size_t i = 0; i <= ranks_.size(); ++i)
    if (const std::uint64_t offset = buffer_of(me_, i).exchange(0)) fabric_->withdraw(offset, buffer_bytes());
}

std::atomic<std::uint32_t>& Cell::hold_of(std::size_t party) const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(memory_ + kCacheLine + party * kCacheLine);
}

std::atomic<std::uint64_t>& Cell::buffer_of(std::size_t writer, std::size_t index) const {
  auto* table =
      reinterpret_cast<std::atomic<std::uint64_t>*>(memory_ + kCacheLine + ranks_.size() * kCacheLine);
  return table[writer * (ranks_.size() + 1) + index];
}

std::size_t Cell::buffer_bytes() const {
  return kCacheLine + (pool_ == nullptr ? bytes_ : 0);
}

// A header, then the bytes.
Content Cell::content(std::size_t buffer) const {
  const std::size_t each = ranks_.size() + 1;
  const std::size_t writer = buffer / each;
  if (writer >= writers_)
    throw Error(fmt::format("a window of rank {} is damaged: it has no buffer {}", ranks_[0], buffer));
  const std::uint64_t offset = buffer_of(writer, buffer % each).load();
  std::byte* memory = fabric_->exposed(ranks_[writer], offset);
  // Its last byte is there, too: another process wrote the offset.
  if (offset % alignof(Header) != 0 || offset + buffer_bytes() < offset ||
      fabric_->exposed(ranks_[writer], offset + buffer_bytes() - 1) == nullptr)
    throw Error(fmt::format("a window of rank {} is damaged: a buffer at {}", ranks_[writer], offset));
  static_assert(sizeof(Header) <= kCacheLine);
  auto* header = reinterpret_cast<Header*>(memory);
  std::byte* data = pool_ == nullptr ? memory + kCacheLine : pool_->find(ranks_[writer], header->block);
  return {data, &header->p, &header->stamp};
}

std::uint64_t Cell::new_buffer() {
  if (pool_ == nullptr) return fabric_->expose(buffer_bytes());
  const std::uint64_t block = pool_->take(ranks_);
  const std::uint64_t offset = fabric_->expose(buffer_bytes());
  reinterpret_cast<Header*>(fabric_->exposed(ranks_[me_], offset))->block = block;
  return offset;
}

// A value is whole when it is published, even if its writer dies then.
void Cell::finish_writing() const {
  if (pool_ != nullptr) kernel::device().synchronize();
}

std::size_t Cell::free_buffer() {
  const auto& control = *reinterpret_cast<Control*>(memory_);
  constexpr std::size_t kMostLooks = 1'000'000;
  std::size_t looked = 0;
  const std::size_t each = ranks_.size() + 1;
  for (std::size_t i = 0;; i = (i + 1) % each) {
    const std::size_t buffer = me_ * each + i;
    if (control.published.load(std::memory_order_seq_cst) % kBuffers == buffer + 1) continue;
    bool held = false;
    for (std::size_t party = 0; party < ranks_.size(); ++party)
      held = held || hold_of(party).load(std::memory_order_seq_cst) == buffer + 1;
    if (held) {
      // There is one buffer more than parties, so some party holds several, which is impossible.
      if (++looked > kMostLooks)
        throw Error(fmt::format("a window of rank {} is damaged: all of its buffers are held", ranks_[0]));
      continue;
    }
    if (buffer_of(me_, i).load() == 0) buffer_of(me_, i).store(new_buffer());
    return buffer;
  }
}

std::uint64_t Cell::hold_published(Held& held) {
  auto& control = *reinterpret_cast<Control*>(memory_);
  auto& hold = hold_of(me_);
  for (;;) {
    const std::uint64_t published = control.published.load(std::memory_order_seq_cst);
    const auto buffer = static_cast<std::uint32_t>(published % kBuffers);
    hold.store(buffer, std::memory_order_seq_cst);
    if (control.published.load(std::memory_order_seq_cst) != published) continue;
    if (buffer > 0) {
      Held found(&hold);
      found.content_ = content(buffer - 1);
      found.on_device_ = pool_ != nullptr;
      held = std::move(found);
    }
    return published;
  }
}

Cell::Held Cell::look() {
  Held held;
  hold_published(held);
  return held;
}

Cell::Held Cell::take() {
  auto& control = *reinterpret_cast<Control*>(memory_);
  for (;;) {
    Held held;
    std::uint64_t published = hold_published(held);
    if (!held) return held;
    if (control.published.compare_exchange_strong(published, next_version(published, 0),
                                                  std::memory_order_seq_cst))
      return held;
  }
}

void Cell::replace(const std::function<void(const Content& fresh)>& fill) {
  auto& control = *reinterpret_cast<Control*>(memory_);
  const std::size_t buffer = free_buffer();
  fill(content(buffer));
  finish_writing();
  std::uint64_t published = control.published.load(std::memory_order_seq_cst);
  while (!control.published.compare_exchange_weak(published, next_version(published, buffer + 1),
                                                  std::memory_order_seq_cst)) {
  }
  if (me_ > 0) control.deposits.fetch_add(1, std::memory_order_release);
}

void Cell::change(const std::function<void(const Content& fresh, const Held& old)>& fill) {
  auto& control = *reinterpret_cast<Control*>(memory_);
  for (;;) {
    Held old;
    std::uint64_t published = hold_published(old);
    const std::size_t buffer = free_buffer();
    fill(content(buffer), old);
    finish_writing();
    if (control.published.compare_exchange_strong(published, next_version(published, buffer + 1),
                                                  std::memory_order_seq_cst))
      break;
  }
  if (me_ > 0) control.deposits.fetch_add(1, std::memory_order_release);
}

std::uint64_t Cell::deposits() const {
  return reinterpret_cast<const Control*>(memory_)->deposits.load(std::memory_order_acquire);
}

}  // namespace starling::flock
