#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "starling/fabric/device_pool.h"

namespace starling::flock {

/// What a cell contains: bytes, and what travels with them in host memory.
struct Content {
  std::byte* data = nullptr;      // in the cell's kind of memory
  double* p = nullptr;            // push-sum's scalar
  std::int64_t* stamp = nullptr;  // the writer's step
};

/// A value in exposed memory that some ranks (the parties) read and the first few of them (the writers)
/// replace as a whole, without ever waiting for each other: a rank that is stopped or killed at any point
/// delays no other rank and leaves the last complete value.
///
/// A writer fills one of its buffers that no reader holds and publishes it with one compare-and-swap. A
/// reader announces which buffer it reads, and then checks that this is still the published one (a hazard
/// pointer); so with one buffer more than there are parties, a writer always has a free one.
///
/// Bytes may lie in device memory of their writer's; all else is on the host. What `fill` enqueues on the
/// calling thread's stream has ended before the buffer is published, and what reads a buffer before it is let
/// go of: so each rank waits for its own device, and no rank for another's.
class Cell {
 public:
  /// A reader's hold on a buffer, until this is dropped: by the thread that enqueued work on it.
  class Held {
   public:
    Held() = default;
    explicit Held(std::atomic<std::uint32_t>* hold) : hold_(hold) {}
    Held(Held&& other) noexcept { swap(other); }
    Held& operator=(Held&& other) noexcept {
      Held(std::move(other)).swap(*this);
      return *this;
    }
    ~Held();

    explicit operator bool() const { return hold_ != nullptr; }
    const std::byte* data() const { return content_.data; }
    double p() const { return *content_.p; }
    std::int64_t stamp() const { return *content_.stamp; }

   private:
    friend class Cell;
    void swap(Held& other) noexcept {
      std::swap(hold_, other.hold_);
      std::swap(on_device_, other.on_device_);
      std::swap(content_, other.content_);
    }
    std::atomic<std::uint32_t>* hold_ = nullptr;
    bool on_device_ = false;
    Content content_;
  };

  /// Bytes of control memory.
  static std::size_t control_bytes(std::size_t parties, std::size_t writers);

  /// `control` is zeroed exposed memory that all parties map; `ranks` lists the parties, writers first; this
  /// rank is ranks[me]. Values have `bytes` bytes, and lie in blocks of the pool if there is one.
  Cell(std::shared_ptr<Fabric> fabric, std::byte* control, std::vector<Rank> ranks, std::size_t writers,
       std::size_t me, std::size_t bytes, fabric::DevicePool* pool = nullptr);
  /// Gives this writer's host memory back; no party reads the cell any more. Blocks go with their pool.
  void withdraw();

  /// Reads the value; false if the cell is empty.
  Held look();
  /// Takes the value out and leaves the cell empty; false if it was empty.
  Held take();
  /// Publishes what `fill` writes.
  void replace(const std::function<void(const Content& fresh)>& fill);
  /// Publishes what `fill` makes of the current value; called again if the value has changed in the meantime.
  /// `old` is empty if the cell is empty.
  void change(const std::function<void(const Content& fresh, const Held& old)>& fill);
  /// How many values other writers than the first have published.
  std::uint64_t deposits() const;

 private:
  struct Control;
  struct Header;

  std::atomic<std::uint32_t>& hold_of(std::size_t party) const;
  std::atomic<std::uint64_t>& buffer_of(std::size_t writer, std::size_t index) const;
  /// What a buffer has in exposed memory.
  std::size_t buffer_bytes() const;
  Content content(std::size_t buffer) const;
  std::uint64_t new_buffer();
  void finish_writing() const;
  /// A buffer of this writer's that no reader holds.
  std::size_t free_buffer();
  /// The published word; holds its buffer if there is a value.
  std::uint64_t hold_published(Held& held);

  std::shared_ptr<Fabric> fabric_;
  std::byte* memory_;
  std::vector<Rank> ranks_;
  std::size_t writers_;
  std::size_t me_;
  std::size_t bytes_;
  fabric::DevicePool* pool_;
};

}  // namespace starling::flock
