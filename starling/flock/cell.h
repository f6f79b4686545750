#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling::flock {

/// The content of a cell: bytes, with their push-sum scalar p and stamp.
struct Content {
  std::byte* data = nullptr;
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
class Cell {
 public:
  /// A reader's hold on a buffer, until this object is destroyed.
  class Held {
   public:
    Held() = default;
    Held(std::atomic<std::uint32_t>* hold, Content content) : hold_(hold), content_(content) {}
    Held(Held&& other) noexcept { swap(other); }
    Held& operator=(Held&& other) noexcept {
      Held(std::move(other)).swap(*this);
      return *this;
    }
    ~Held() {
      if (hold_ != nullptr) hold_->store(0, std::memory_order_seq_cst);
    }

    explicit operator bool() const { return hold_ != nullptr; }
    const std::byte* data() const { return content_.data; }
    double p() const { return *content_.p; }
    std::int64_t stamp() const { return *content_.stamp; }

   private:
    void swap(Held& other) noexcept {
      std::swap(hold_, other.hold_);
      std::swap(content_, other.content_);
    }
    std::atomic<std::uint32_t>* hold_ = nullptr;
    Content content_;
  };

  /// Bytes of control memory.
  static std::size_t control_bytes(std::size_t parties, std::size_t writers);

  /// `control` is zeroed exposed memory that all parties map; `ranks` lists the parties, writers first; this
  /// rank is ranks[me]. Values have `bytes` bytes.
  Cell(std::shared_ptr<Fabric> fabric, std::byte* control, std::vector<Rank> ranks, std::size_t writers,
       std::size_t me, std::size_t bytes);
  /// Frees this writer's buffers; no party may read the cell afterwards.
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

  std::atomic<std::uint32_t>& hold_of(std::size_t party) const;
  std::atomic<std::uint64_t>& buffer_of(std::size_t writer, std::size_t index) const;
  Content content(std::size_t buffer) const;
  /// A buffer of this writer that no reader holds.
  std::size_t free_buffer();
  /// The published word; holds its buffer if there is a value.
  std::uint64_t hold_published(Held& held);

  std::shared_ptr<Fabric> fabric_;
  std::byte* memory_;
  std::vector<Rank> ranks_;
  std::size_t writers_;
  std::size_t me_;
  std::size_t bytes_;
};

}  // namespace starling::flock
